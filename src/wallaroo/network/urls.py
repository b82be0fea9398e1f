"""Validation and redaction of users' URLs.

Where it runs: pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

_HOST = r"(?:\[[^]\s/?#@]*\]|[^][\s:/?#@,]*)"
_SERVERS = re.compile(rf"(?:[^/?#]*@)?({_HOST}(?::\d+)?(?:,{_HOST}(?::\d+)?)*)(?=[/?#]|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NO_HOST = re.compile(r"[\s%]")


def url_problem(url: str, example: str, *schemes: str) -> tuple[str, str] | None:
    """Return the problem of a URL, without a part of it, and the remedy; None if there is none.

    >>> url_problem("wss://host", "ws://host:port/path", "ws", "wss")
    >>> url_problem("http://host", "ws://host:port/path", "ws", "wss")
    ('The url does not begin with ws:// or wss://.', "Write 'ws://host:port/path'.")
    """
    *others, last = (f"{scheme}://" for scheme in schemes)
    if not url.startswith((*others, last)):
        what = f"The url does not begin with {', '.join(others)} or {last}."
        return what, f"Write {example!r}."
    if _CONTROL.search(url):
        return "The url contains a newline or another control character.", "Leave it out (strip())."
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")  # as sockets do later; UnicodeError is a ValueError
        is_readable = parts.port != 0 and (":" in host or not _NO_HOST.search(host))
    except ValueError:
        is_readable = False
    if not is_readable:
        fix = f"Write {example!r}; in a password / is %2F, ? is %3F, # is %23 and [ is %5B."
        return "The host and port of the url cannot be read.", fix
    return None


def place_and_query(url: str) -> tuple[str, str]:
    """Return a URL without login and query, which may hold secrets; and the query.

    The login may contain what it should encode: then it ends at the last @.

    >>> place_and_query("redis://me:pw@host:1/0?password=p@w")
    ('redis://host:1/0', 'password=p@w')
    >>> place_and_query("amqp://me:p,/w@host:1/vhost")
    ('amqp://host:1/vhost', '')
    """
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    servers = _SERVERS.match(rest)
    begin = servers.start(1) if servers else rest.rfind("@") + 1
    place, *query = re.split(r"[?#]", rest[begin:], maxsplit=1)
    return f"{scheme}{mark}{place}", "".join(query)


def place_of(url: str) -> str:
    """Return a URL without login and query, for errors."""
    return place_and_query(url)[0]


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
