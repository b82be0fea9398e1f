"""What all sinks have in common that are written from a queue: writer, committer and system."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.connectors.file.files import staged
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from wallaroo import encoder, sinks
from wallaroo.compat.sink.config import SinkConnectorConfig
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import PeerError, UserCodeError, WallarooError, WallarooParameterError
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.queued_committer import QueuedCommitter
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import Staged
from wallaroo.testing import run_step

EXPORTED: list[Any] = [getattr(sinks, name) for name in sinks.__all__]
QUEUED: list[type[QueuedSinkConfig]] = [
    each
    for each in (*EXPORTED, SinkConnectorConfig)
    if isinstance(each, type) and issubclass(each, QueuedSinkConfig)
]
WRITTEN: list[bytes] = []
DRAIN_S = 400.0


@dataclass(frozen=True)
class ListSinkConfig(QueuedSinkConfig):
    """A sink of a list in memory."""

    kind: ClassVar[str] = "list"
    shown_options: ClassVar[str] = "size={0.size!r}"
    system: ClassVar[str] = f"{__name__}:ListSystem"

    size: int = 1
    encoder: None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise self._wrong("It holds nothing.", "Give 1 or more.")

    @property
    def label(self) -> str:
        return "list"

    @property
    def target(self) -> str:
        return "the list"


class ListSystem(ExternalSystem[ListSinkConfig]):
    """A list that refuses more outputs than it may hold."""

    errors: ClassVar[tuple[type[Exception], ...]] = (OverflowError,)

    def connect(self, checkpoint: str) -> Session:
        return ListSession(self._config.size)

    def waiting_for(self, error: Exception) -> str:
        return ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        return PeerError(f"{self.target} of sink '{self._context.sink}' is full")


class ListSession(Session):
    """The list."""

    def __init__(self, size: int):
        self._size = size

    def last(self) -> CommitId:
        return CommitId(CHECKPOINT)

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        for part in parts:
            WRITTEN.append(bytes(part.body))
        if len(WRITTEN) > self._size:
            raise OverflowError
        return True

    def close(self) -> None:
        WRITTEN.append(b"closed")


@pytest.fixture(autouse=True)
def _empty() -> None:
    WRITTEN.clear()


@pytest.mark.parametrize("config", QUEUED, ids=lambda config: config.kind)
def test_the_named_system_and_queue_exist_and_take_the_configuration(
    config: type[QueuedSinkConfig],
) -> None:
    """Names of modules are texts, which no checker follows."""
    for path, base in ((config.system, ExternalSystem), (config.queue, QueuedCommitter)):
        module, _, name = path.partition(":")
        assert issubclass(getattr(import_module(module), name), base)


def test_every_queued_sink_is_checked() -> None:
    assert len(QUEUED) == len({config.kind for config in QUEUED}) == 15


def test_a_configuration_with_a_system_is_a_sink(tmp_path: Path) -> None:
    config: Any = pickle.loads(pickle.dumps(ListSinkConfig()))
    committer = config.committer("s", tmp_path, True)
    committer.recover(history_to(), [])
    committer.commit(commit_of(0), staged(config, tmp_path, 0, [b"a"]))
    committer.close(DRAIN_S)
    assert WRITTEN == [b"a", b"closed"]


def test_a_permanent_error_ends_the_run_and_names_the_sink(tmp_path: Path) -> None:
    config: Any = ListSinkConfig()
    WRITTEN.append(b"before")
    committer = config.committer("s", tmp_path, True)
    committer.recover(history_to(), [])
    committer.commit(commit_of(0), staged(config, tmp_path, 0, [b"a"]))
    with pytest.raises(PeerError, match="the list of sink 's' is full"):
        committer.close(DRAIN_S)


def test_the_library_that_a_system_needs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ListSinkConfig, "library", "listlib")
    monkeypatch.setitem(sys.modules, __name__, None)  # type: ignore[arg-type]
    words = r"Sink 's' \(list\) needs listlib, .* pip install listlib"
    with pytest.raises(PeerError, match=words):
        ListSinkConfig().open_system(CommitContext("s", tmp_path, is_durable=True))


def test_a_wrong_option_names_the_configuration() -> None:
    with pytest.raises(WallarooParameterError, match=r"^ListSinkConfig\(size=0\): It holds"):
        ListSinkConfig(0)


def without_a_total(event: Any) -> Any:
    key = "total"
    return event[key]


ON_LINE = encoder(without_a_total)


@pytest.mark.parametrize(
    "config",
    [
        sinks.KafkaSinkConfig("t", "h:9092", ON_LINE),
        sinks.MQTTSinkConfig("h", "t", ON_LINE),
        sinks.RedisSinkConfig("redis://h", ON_LINE, stream="s"),
        sinks.SQLiteSinkConfig("x", "t", ("a",), ON_LINE),
    ],
    ids=lambda config: config.kind,
)
def test_an_error_of_an_encoder_is_placed_on_the_line_that_raised_it(config: Any) -> None:
    """A sink that packs outputs calls the user's function from its own."""
    with pytest.raises(UserCodeError) as caught:
        run_step(config.encoder, [{}])
    file, line = ON_LINE.place.rsplit(":", 1)
    assert caught.value.place == f"{file}:{int(line) + 2}"
