"""The authorities that a client's TLS context trusts."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.ingress.test_tls import make_certificate
from wallaroo.errors import PeerError
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import client_context, server_context


def names_of(context: ssl.SSLContext) -> list[str]:
    """The common names of the authorities that a context has loaded."""
    subjects = [dict(part[0] for part in cert["subject"]) for cert in context.get_ca_certs()]  # type: ignore[index,misc,arg-type]
    return [str(subject["commonName"]) for subject in subjects]


def test_named_authorities_replace_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", make_certificate(tmp_path, "system").certificate)
    own = make_certificate(tmp_path, "own")
    assert names_of(client_context(TLS())) == ["system"]
    assert names_of(client_context(TLS(ca=own.certificate))) == ["own"]
    trusting = client_context(TLS(own.certificate, own.key, own.certificate))
    assert names_of(trusting) == ["own"]
    assert trusting.check_hostname
    assert trusting.verify_mode is ssl.CERT_REQUIRED


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(PeerError, match=r"TLS: .*empty\.pem cannot be used"):
        client_context(TLS(ca=str(empty)))


@pytest.mark.parametrize("context_of", [client_context, server_context])
def test_a_key_with_a_passphrase_is_refused_rather_than_asked_for(
    tmp_path: Path, context_of: Callable[[TLS], ssl.SSLContext]
) -> None:
    own = make_certificate(tmp_path, "own")
    locked = str(tmp_path / "locked.key")
    command = ["openssl", "pkey", "-aes256", "-passout", "pass:secret"]
    subprocess.run([*command, "-in", own.key, "-out", locked], check=True)
    with pytest.raises(PeerError, match=r"locked\.key needs a passphrase. Give a key without"):
        context_of(TLS(own.certificate, locked))
