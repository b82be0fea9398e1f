"""A second listener of the tests' broker: TLS, and a user with a password.

Where it runs: tests.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

USER = "reader"
PASSWORD = "a password of tests"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class Secured:
    """Where it listens, and the certificate that clients have to trust."""

    port: int
    certificate: Path
    password: str = field(default=PASSWORD, repr=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """What clients say, by librdkafka's names."""
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": self.password,
        }


def secured_listener(folder: Path, ports: tuple[int, int, int]) -> tuple[Secured, dict[str, str]]:
    """Make a certificate; return the listener and the broker's properties.  ``ports``: of the open
    listener, the controller's and this one.
    """
    certificate = folder / "broker.pem"
    key = folder / "broker.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    both = folder / "keystore.pem"
    both.write_text(key.read_text() + certificate.read_text())
    plain, controller, own = (f"127.0.0.1:{port}" for port in ports)
    kinds = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL"
    return Secured(ports[2], certificate), {
        "listeners": f"PLAINTEXT://{plain},CONTROLLER://{controller},SECURED://{own}",
        "advertised.listeners": f"PLAINTEXT://{plain},SECURED://{own}",
        "listener.security.protocol.map": kinds,
        "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f'{LOGIN} user_{USER}="{PASSWORD}";',
        "listener.name.secured.ssl.keystore.type": "PEM",
        "listener.name.secured.ssl.keystore.location": str(both),
    }
