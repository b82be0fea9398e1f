"""A checkpoint's files over the network: what tasks read and add, and what they may not."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.ingress.test_tls import make_certificate
from tests.unit.spool.remote.conftest import Proxy, Served
from wallaroo.connectors.tcp.sink import TCPSinkConfig
from wallaroo.dataflow.plan.model import Plan, SinkPlan
from wallaroo.errors import CheckpointError, InternalError, PeerError
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.runtime.tasks.job import Deployment
from wallaroo.runtime.tasks.staging import StagedOutputs
from wallaroo.sinks.staging import read_staged
from wallaroo.spool.remote import files as files_module
from wallaroo.spool.remote.files import CheckpointFiles
from wallaroo.spool.remote.link import Endpoint
from wallaroo.spool.remote.session import RangeSession
from wallaroo.spool.remote.storage import RemoteStorage
from wallaroo.state.log.layout import FOLDERS, FORMAT
from wallaroo.state.log.storage import LocalStorage

LARGE = bytes(range(256)) * 20_000  # several parts, and more than sockets hold


@contextlib.contextmanager
def serving(root: Path, **options: object) -> Iterator[Feeders]:
    """Serve a checkpoint's folder; the server is watched as in a run."""
    for folder in (*FOLDERS, "owners", "outbox/sink"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    feeders = Feeders()
    is_over = threading.Event()
    feeding = Feeding(
        log=lambda line: None,
        serve_on="127.0.0.1",
        serve_files=str(root),
        **options,  # type: ignore[arg-type]  # see the callers
    )

    def watch() -> None:
        while not is_over.wait(0.05):
            feeders.poll()

    feeders.start([], root / "spool", feeding)
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield feeders
    finally:
        is_over.set()
        watching.join()
        feeders.stop()


def storage_of(feeders: Feeders, certificate: str = "") -> RemoteStorage:
    assert feeders.range_address is not None
    return RemoteStorage(Endpoint(feeders.range_address, feeders.range_secret, certificate))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def feeders(root: Path) -> Iterator[Feeders]:
    with serving(root) as feeders:
        yield feeders


@pytest.fixture
def storage(feeders: Feeders) -> RemoteStorage:
    return pickle.loads(pickle.dumps(storage_of(feeders)))  # as it comes to a task


@pytest.mark.parametrize("content", [b"", b"delta", LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize("name", ["deltas/1.0.0.a.delta", "snapshots/1.0.a", "outbox/sink/1.out"])
def test_what_a_task_adds_is_whole_and_private(
    root: Path, storage: RemoteStorage, name: str, content: bytes
) -> None:
    storage.publish(name, content)

    assert (root / name).read_bytes() == content
    assert (root / name).stat().st_mode & 0o777 == 0o600
    assert not list((root / name).parent.glob(".*"))


def test_it_reads_what_the_driver_reads(root: Path, storage: RemoteStorage) -> None:
    """Files of any size, names sorted, and the same error for what is missing."""
    local = LocalStorage(str(root), is_durable=False)
    for name in ("commits/7.2", "commits/11.2", "owners/2", "deltas/read", FORMAT):
        local.publish(name, name.encode() * 70_000)
        assert storage.read(name) == local.read(name)
    (root / "commits/.8.2.tmp").touch()
    for folder in ("commits", "owners", "deltas"):
        assert storage.names(folder) == local.names(folder)
    for each in (local, storage):
        with pytest.raises(CheckpointError, match=r"lacks .*deltas/none") as raised:
            each.read("deltas/none")
        assert isinstance(raised.value.__cause__, FileNotFoundError)  # what a log looks for
    assert storage.read("commits/7.2")  # the connection is of use still


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "deltas/../format.json",
        "deltas/.hidden",
        "deltas",
        "deltas/a/b",
        "/etc/passwd",
        "deltas/a\0b",
        "run.json",
        "lock",
        "spool/In.spool",
    ],
)
def test_nothing_else_is_read_or_added(storage: RemoteStorage, name: str) -> None:
    with pytest.raises(PeerError, match="does not serve this run's spools"):
        storage.read(name)
    with pytest.raises(PeerError, match=r"does not serve this run's spools|cannot be written"):
        dataclasses.replace(storage, retry_s=0.3).publish(name, b"content")


@pytest.mark.parametrize("name", ["commits/9.1", "owners/9", FORMAT, "outbox/left.json"])
def test_the_log_and_the_notes_are_the_drivers_alone(
    root: Path, storage: RemoteStorage, name: str
) -> None:
    before = (root / name).read_bytes() if (root / name).exists() else None

    with pytest.raises(PeerError):
        dataclasses.replace(storage, retry_s=0.3).publish(name, b"content")
    with pytest.raises(InternalError):
        storage.delete(name)

    assert before == ((root / name).read_bytes() if (root / name).exists() else None)


def test_a_connection_that_breaks_is_replaced(root: Path, feeders: Feeders) -> None:
    """On the way there and back, at any byte; files are whole."""
    assert feeders.range_address is not None
    (root / "snapshots/large").write_bytes(LARGE)
    proxy = Proxy(feeders.range_address, cuts=[0, 20, 60, 85, 100_000, 3_000_000])
    storage = RemoteStorage(Endpoint(proxy.address, feeders.range_secret))
    try:
        assert storage.read("snapshots/large") == LARGE
        broken = threading.Timer(0.002, proxy.break_all)
        broken.start()
        storage.publish("deltas/broken", LARGE)
        broken.join()
    finally:
        proxy.close()

    assert proxy.connections >= 6
    assert (root / "deltas/broken").read_bytes() == LARGE


@pytest.mark.parametrize("point", ["remote.write", "remote.rename"])
def test_a_server_that_is_killed_comes_back_and_the_file_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("WALLAROO_FAULT", f"{point}:3")  # the next server counts from 1 again
    with serving(tmp_path, is_durable=True) as feeders:
        storage = dataclasses.replace(storage_of(feeders), retry_s=120.0)
        before = feeders.pids["range server"]

        for number in range(4):
            storage.publish(f"deltas/{number}", LARGE)

        assert feeders.pids["range server"] != before
    assert [(tmp_path / f"deltas/{number}").read_bytes() for number in range(4)] == [LARGE] * 4


def test_files_travel_encrypted(tmp_path: Path) -> None:
    tls = make_certificate(tmp_path, "server")
    with serving(tmp_path / "checkpoint", serve_tls=tls) as feeders:
        storage = storage_of(feeders, Path(tls.certificate).read_text())

        storage.publish("deltas/encrypted", LARGE)

        assert storage.read("deltas/encrypted") == LARGE
        assert storage.names("deltas") == ["encrypted"]


def test_a_disk_that_is_full_is_named_and_the_connection_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a file is received, whatever the disk does, so that the answer is read."""

    def full(descriptor: int, content: memoryview) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files_module, "write_all", full)
    (tmp_path / "deltas").mkdir()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sending = threading.Thread(target=theirs.sendall, args=(LARGE,))
        sending.start()
        receiving = CheckpointFiles(tmp_path, is_synced=True).receive(
            RangeSession(ours, "a task"), "deltas/full", len(LARGE)
        )

        with pytest.raises(PeerError, match=r"deltas/full: No space left on device\. Free"):
            list(receiving)
        sending.join()

    assert not list((tmp_path / "deltas").iterdir())


def test_a_file_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "deltas").mkdir()
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"half")
        theirs.close()
        receiving = CheckpointFiles(tmp_path, is_synced=False).receive(
            RangeSession(ours, "a task"), "deltas/half", 8
        )

        with pytest.raises(ConnectionError):
            list(receiving)

    assert not list((tmp_path / "deltas").iterdir())


def test_a_server_of_spools_alone_serves_no_files(served: Served) -> None:
    """Hosts that share the checkpoint's folder have no use for it."""
    storage = RemoteStorage(Endpoint(served.address, served.secret), retry_s=0.3)
    with pytest.raises(PeerError, match="it serves no files of a checkpoint"):
        storage.read(FORMAT)


@pytest.mark.parametrize("inline_bytes_max", [0, 1 << 20], ids=["file", "token"])
def test_staged_output_is_handed_over_under_the_name_in_its_token(
    root: Path, storage: RemoteStorage, inline_bytes_max: int
) -> None:
    """The driver reads it as if the task had written into its folder."""
    sink = SinkPlan("sink", TCPSinkConfig("127.0.0.1", 1), None)
    deployment = dataclasses.replace(
        Deployment.of(Plan("app", (), (), ()), (), root, (), "", "id", False),
        storage=storage,
        outbox_root="",
        tuning=Tuning(inline_bytes_max=inline_bytes_max),
    )
    outputs = StagedOutputs(deployment, batch=7, task=0, tasks=1, attempt="a")
    for number in range(3):
        outputs.write(4, sink, [b"%d" % number, b"x" * 100_000])

    tokens = outputs.prepare()
    outputs.close()

    assert list(tokens) == [4]
    staged = read_staged(root / "outbox/sink", tokens[4])
    assert [bytes(output) for output in staged.outputs()] == [
        output for number in range(3) for output in (b"%d" % number, b"x" * 100_000)
    ]


def test_files_that_exist_already_are_replaced_by_themselves(
    root: Path, storage: RemoteStorage
) -> None:
    """A task whose answer was lost asks again."""
    storage.publish("deltas/again", LARGE)
    storage.publish("deltas/again", LARGE)
    assert (root / "deltas/again").read_bytes() == LARGE
