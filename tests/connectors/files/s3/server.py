"""A real S3 server for tests: S3Proxy over a folder.

Where it runs: tests.  S3Proxy is a server of the S3 protocol in production use (signatures, ranges,
multipart uploads); what it stores lies in files.  The artifacts come from
`scripts/setup-test-servers`, which copies them to ``.servers/s3proxy`` with Maven.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server_process import ServerProcess
from wallaroo.spark.local_cluster.hosts import free_ports

ARTIFACTS = Path(__file__).resolve().parents[4] / ".servers" / "s3proxy"
KEY, SECRET = "tests", "secret-of-tests"
PROPERTIES = """\
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}/data
jclouds.identity=none
jclouds.credential=none
"""
QUIET = "<configuration><root level='OFF'/></configuration>"


def environment_of(port: int, cache: Path, host: str = "127.0.0.1") -> dict[str, str]:
    """Return the variables of a machine whose checkpoints are in a server."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "WALLAROO_CACHE": str(cache),
    }


def options_of(port: int) -> dict[str, Any]:
    """What clients of a server need."""
    return {
        "endpoint_override": f"127.0.0.1:{port}",
        "scheme": "http",
        "region": "us-east-1",
        "access_key": KEY,
        "secret_key": SECRET,
    }


@dataclass(slots=True)
class S3Server(ServerProcess):
    """A server; its data survive `kill` and `start`."""

    @property
    def options(self) -> dict[str, Any]:
        """What clients need."""
        return options_of(self.port)

    def start(self) -> None:
        """Start; return when it answers."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        (self.folder / "logback.xml").write_text(QUIET)
        text = PROPERTIES.format(
            host=self.host, port=self.port, key=KEY, secret=SECRET, folder=self.folder
        )
        (self.folder / "s3.properties").write_text(text)
        java = os.environ.get("JAVA_HOME")
        options = ["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self.launch(
            [
                f"{java}/bin/java" if java else "java",
                *options,
                f"-Dlogback.configurationFile={self.folder}/logback.xml",
                *("-cp", f"{ARTIFACTS}/*", "org.gaul.s3proxy.Main"),
                *("--properties", str(self.folder / "s3.properties")),
            ]
        )


@contextmanager
def running_s3(folder: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """A server for as long as the context lasts."""
    (port,) = free_ports(1)
    server = S3Server(folder, port, host=host)
    try:
        server.start()
        yield server
    finally:
        server.kill()
