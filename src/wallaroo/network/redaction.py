"""Removal of secrets from other systems' texts.

Where it runs: driver and feeder processes; pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = r"(?:secret|password|token|access[.]?key)"  # Spark's own pattern of redacted settings
SECRETS = re.compile(rf"(?i){_NAME}")
HIDDEN = "***"
_ASSIGNED = re.compile(rf"(?i)([\w.-]*{_NAME}[\w.-]*\s*[=:]\s*)[^\s,;&)\]}}]+")
_USER = re.compile(r"(\w://)[^/\s?#]+@")


def redacted(text: str, settings: Mapping[str, str]) -> str:
    """Return a text without the values of secret settings and parameters, and users of URLs.

    >>> redacted("jdbc:x://me:pw@h/db?user=me&password=pw, fs.s3a.secret.key=a", {})
    'jdbc:x://***@h/db?user=me&password=***, fs.s3a.secret.key=***'
    >>> redacted("denied to xyz", {"spark.hadoop.fs.s3a.access.key": "xyz", "spark.x": "to"})
    'denied to ***'
    """
    for name, value in settings.items():
        if value and SECRETS.search(name):
            text = text.replace(value, HIDDEN)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))
