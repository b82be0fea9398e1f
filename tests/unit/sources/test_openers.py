"""The modules that configurations of sources and sinks name, loaded only where they are opened."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import pytest

from wallaroo import FileSinkConfig, FileSourceConfig, TCPSinkConfig, decoder, sources
from wallaroo.errors import InternalError, PeerError
from wallaroo.sources.interface import FedBy, SourceConfig
from wallaroo.sources.log import LogContext
from wallaroo.user_code.references import load

EXPORTED: list[Any] = [getattr(sources, name) for name in sources.__all__]
OPENED: list[Any] = [
    *(each for each in EXPORTED if getattr(each, "opener", "")),
    FileSourceConfig,
    FileSinkConfig,
    TCPSinkConfig,
]
ARGUMENTS = {
    "open_feed": ["config", "resume"],
    "open_log": ["config", "context"],
}


@decoder(header_length=4, length_fmt=">I")
def as_text(payload: bytes) -> str:
    return payload.decode()


@dataclass(frozen=True, slots=True)
class NamedSourceConfig(SourceConfig[str]):
    """A source whose feed and log are the arguments that they are opened with."""

    kind: ClassVar[str] = "named"
    opener: ClassVar[str] = f"{__name__}:opened"
    library: ClassVar[tuple[str, ...]] = ("namedlib", "on every host")

    name: str = "n"
    decoder: Any = as_text

    @property
    def label(self) -> str:
        return "named source"


class NamedLogConfig(NamedSourceConfig):
    """The same, which keeps a log itself."""

    fed_by: ClassVar[FedBy] = FedBy.ITSELF


def opened(config: Any, argument: Any) -> Any:
    return config, argument


@pytest.mark.parametrize("config", OPENED, ids=lambda config: config.__name__)
def test_the_named_opener_exists_and_takes_the_configuration(config: Any) -> None:
    """Names of modules are texts, which no checker follows."""
    opener = load(config.opener)
    if issubclass(config, SourceConfig):
        name = "open_log" if config.fed_by is FedBy.ITSELF else "open_feed"
        assert opener.__name__ == name
        assert list(signature(opener).parameters) == ARGUMENTS[name]
    else:
        assert opener.__name__ == "open_committer"
        assert list(signature(opener).parameters)[-2:] == ["staging", "is_durable"]


def test_every_configuration_with_an_opener_is_checked() -> None:
    assert len(OPENED) == 15


def test_an_opener_gets_the_configuration_and_the_argument() -> None:
    context = LogContext(Path())
    feed: Any = NamedSourceConfig().open_feed(b"7")
    log: Any = NamedLogConfig().open_log(context)
    assert feed == (NamedSourceConfig(), b"7")
    assert log == (NamedLogConfig(), context)


def test_a_source_that_is_its_own_log_has_no_feed() -> None:
    with pytest.raises(InternalError, match="is not fed by a feeder"):
        NamedLogConfig().open_feed(b"")


def test_the_library_that_an_opener_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, None)  # type: ignore[arg-type]
    words = (
        r"^Source 'n' \(named source\) needs namedlib, .* Install it on every host: "
        r".*python\S* -m pip install namedlib"
    )
    with pytest.raises(PeerError, match=words):
        NamedSourceConfig().open_feed(b"")
