"""Addresses of other systems, without secrets, as checkpoints note them.

Where it runs: driver; pure.
"""

from __future__ import annotations

import re
from hashlib import blake2b

_SECRET = re.compile(r"(?i)\b(?:ssl)?password\s*=\s*(?:'(?:[^'\\]|\\.)*'|\S*)\s*")


def without_secrets(address: str) -> str:
    """Return an address without users and passwords.

    It is a URL, several of them, or libpq's ``key=value ...``.  A query, which may hold a key, is
    replaced by a checksum.

    >>> without_secrets("amqp://me:p,/w@host:5672/vhost"), without_secrets("host=h password='a b'")
    ('amqp://host:5672/vhost', 'host=h')
    >>> without_secrets("http://h/x?key=1") == without_secrets("http://h/x?key=2")
    False
    """
    scheme, mark, rest = address.partition("://")
    if not mark:
        return _SECRET.sub("", address).strip()
    place, _, query = rest.rpartition("@")[2].partition("?")
    digest = f"?{blake2b(query.encode(), digest_size=4).hexdigest()}" if query else ""
    return f"{scheme}://{place}{digest}"
