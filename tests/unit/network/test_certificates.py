"""Certificates that other hosts will not accept are refused before anything is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.ingress.test_tls import make_certificate
from wallaroo.errors import PeerError
from wallaroo.network.certificates import require_valid
from wallaroo.network.tls import TLS


def test_a_certificate_that_is_valid_is_accepted(tmp_path: Path) -> None:
    require_valid(make_certificate(tmp_path, "own"))


def test_a_certificate_that_has_expired_is_refused(tmp_path: Path) -> None:
    own = make_certificate(tmp_path, "own")
    old = str(tmp_path / "old.pem")
    command = ["openssl", "x509", "-in", own.certificate, "-days", "-1", "-signkey", own.key]
    subprocess.run([*command, "-out", old], check=True, capture_output=True)

    with pytest.raises(PeerError, match=r"old\.pem is not accepted .*: certificate has expired"):
        require_valid(TLS(old, own.key))
