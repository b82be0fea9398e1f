"""A checkpoint in Azure's emulator, if it is installed (``azurite-blob`` of npm's ``azurite``)."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import http.client
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import ServerProcess
from tests.stores.stored_driver import expected
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.state.store.objects import CloudObjects, TakenKeyError
from wallaroo.state.store.store_log import StoreLog

AZURITE = shutil.which("azurite-blob")
pytestmark = pytest.mark.skipif(AZURITE is None, reason="azurite-blob is not installed")
ACCOUNT = "devstoreaccount1"
# the emulator's key, the same everywhere
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
EVENTS = 1200


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an emulator with a container."""
    folder = tmp_path_factory.mktemp("azurite")
    (number,) = free_ports(1)
    server = ServerProcess(folder, number)
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(number), "--location", str(folder)]
    server.launch([str(AZURITE), *options, "--silent", "--skipApiVersionCheck"])
    try:
        _create_container(number)
        yield number
    finally:
        server.kill()


def _create_container(port: int) -> None:
    date = email.utils.formatdate(usegmt=True)
    version = "2021-08-06"
    signed = (
        f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{version}\n"
        f"/{ACCOUNT}/{ACCOUNT}/container\nrestype:container"
    )
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("PUT", f"/{ACCOUNT}/container?restype=container", headers=headers)
    assert connection.getresponse().status == 201
    connection.close()


@pytest.fixture(autouse=True)
def account(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients find the emulator."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}/{ACCOUNT}")


def test_conditions_are_kept() -> None:
    """As the first start tries them."""
    objects = CloudObjects("az://container/conditions")
    objects.create("log/0", b"first")

    with pytest.raises(TakenKeyError):
        objects.create("log/0", b"second")

    assert not objects.replace_stale("log/0", b"third")
    assert objects.get("log/0") == b"first"
    assert objects.names("log") == ["0"]
    objects.delete("log/0")
    assert objects.get("log/0") is None
    StoreLog(objects).probe()


def test_killed_runs_are_continued_on_two_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event leaves once."""
    faults = ["store.appended:5", "store.append:5", "store.sweep:1", ""]
    for turn, fault in enumerate(faults):
        with (tmp_path / "in.txt").open("a") as file:
            file.writelines(f"{each}\n" for each in range(turn * EVENTS, (turn + 1) * EVENTS))
        monkeypatch.setenv("WALLAROO_CACHE", str(tmp_path / f"machine{turn % 2}"))
        monkeypatch.setenv("WALLAROO_FAULT", fault)
        program = ("-m", "tests.stores.stored_driver", str(tmp_path), "az://container/runs")

        run = subprocess.run([sys.executable, *program, "--take-over"], timeout=400)

        assert run.returncode == (-signal.SIGKILL if fault else 0)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert sorted(lines) == expected(len(faults) * EVENTS)
