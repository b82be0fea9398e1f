"""Addresses of other systems, without secrets, as checkpoints note them.

Where it runs: driver; pure.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from wallaroo.network.urls import place_and_query

_VALUE = r"(?:'(?:[^'\\]|\\.)*(?:'|$)|\\.|[^\s'\\])*"
_SECRET = re.compile(rf"(?i)\b(?:ssl)?password\s*=\s*{_VALUE}\s*")
_is_of_libpq = re.compile(r"\s*\w+\s*=").match


def without_secrets(address: str) -> str:
    """Return an address without users and passwords.

    It is a URL, several of them, or libpq's ``key=value ...``.  A query, which may hold a key, is
    replaced by a checksum.

    >>> without_secrets("amqp://me:p,/w@host:5672/vhost"), without_secrets("host=h password='a b'")
    ('amqp://host:5672/vhost', 'host=h')
    >>> without_secrets("http://h/x?key=1") == without_secrets("http://h/x?key=2")
    False
    """
    if _is_of_libpq(address):
        return _SECRET.sub("", address).strip()
    place, query = place_and_query(address)
    digest = f"?{blake2b(query.encode(), digest_size=4).hexdigest()}" if query else ""
    return f"{place}{digest}"
