"""A client of the S3 protocol in a few lines, which shares no code with the product: what is stored
is read with it.

Where it runs: tests.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.request
import xml.etree.ElementTree as xml
from email.utils import formatdate
from urllib.parse import quote

from tests.connectors.files.s3.server import KEY, SECRET

ANSWER_S_MAX = 400.0


class S3Client:
    """Requests signed with version 2 of the protocol's signature."""

    def __init__(self, port: int):
        self._address = f"http://127.0.0.1:{port}"

    def make_bucket(self, bucket: str) -> None:
        """Create a bucket."""
        self._ask("PUT", f"/{bucket}")

    def names(self, bucket: str) -> list[str]:
        """Return the names of all objects."""
        found: list[str] = []
        while True:
            after = f"?marker={quote(found[-1], safe='')}" if found else ""
            page = xml.fromstring(self._ask("GET", f"/{bucket}", after))
            found += [key.text or "" for key in page.iterfind(".//{*}Contents/{*}Key")]
            if page.findtext("{*}IsTruncated") != "true":
                return found

    def content(self, bucket: str, name: str) -> bytes:
        """Return an object."""
        return self._ask("GET", f"/{bucket}/{quote(name)}")

    def _ask(self, method: str, path: str, query: str = "") -> bytes:
        date = formatdate(usegmt=True)
        signed = f"{method}\n\n\n{date}\n{path}".encode()
        digest = hmac.new(SECRET.encode(), signed, hashlib.sha1).digest()
        headers = {"Date": date, "Authorization": f"AWS {KEY}:{base64.b64encode(digest).decode()}"}
        request = urllib.request.Request(
            self._address + path + query, method=method, headers=headers
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
            content: bytes = answer.read()
            return content
