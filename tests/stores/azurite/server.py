"""A server of Azure Blob Storage's protocol for tests: Azurite, Microsoft's emulator.

Where it runs: tests.  `scripts/setup-test-servers` installs it with npm to ``.servers/azurite``.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.server_process import ServerProcess
from wallaroo.spark.local_cluster.hosts import free_ports

PROGRAM = (
    Path(__file__).resolve().parents[3]
    / ".servers/azurite/node_modules/azurite/dist/src/blob/main.js"
)
IS_MISSING = not PROGRAM.exists()
MISSING = "Azurite is not installed: run scripts/setup-test-servers"
ACCOUNT = "devstoreaccount1"
# the emulator's key, the same everywhere
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"


def azure_environment_of(port: int, cache: Path) -> dict[str, str]:
    """Return the variables of a machine whose checkpoints are in a server."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
        "WALLAROO_CACHE": str(cache),
    }


@dataclass(slots=True)
class Azurite(ServerProcess):
    """A server; its data survive `kill` and `start`."""

    def start(self) -> None:
        """Start; return when it answers."""
        options = ["--blobHost", self.host, "--blobPort", str(self.port)]
        options += ["--location", str(self.folder), "--silent", "--disableTelemetry"]
        self.launch(["node", str(PROGRAM), *options, "--skipApiVersionCheck"])

    def create_container(self, name: str) -> None:
        """Create a container, for which clients of checkpoints have no request."""
        date = email.utils.formatdate(usegmt=True)
        signed = (
            f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{VERSION}\n"
            f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        assert connection.getresponse().status == 201
        connection.close()


@contextmanager
def running_azurite(folder: Path) -> Iterator[Azurite]:
    """A server with a container named so, for as long as the context lasts."""
    (port,) = free_ports(1)
    server = Azurite(folder, port)
    try:
        server.start()
        server.create_container("container")
        yield server
    finally:
        server.kill()
