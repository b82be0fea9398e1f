"""Small stateful applications for properties: running totals, state handed on as output, one global
order.
"""

from __future__ import annotations

import wallaroo
from tests.conformance.apps.steps import by_itself, text
from wallaroo.api.application import Application


class Total:
    def __init__(self) -> None:
        self.count = 0


class Tally:
    """A state that is its own output."""

    def __init__(self) -> None:
        self.key = ""
        self.numbers: list[int] = []


@wallaroo.state_computation("total", state=Total)
def total(key: str, own: Total) -> str:
    own.count += 1
    return f"{key} {own.count}"


@wallaroo.state_computation("tally", state=Tally)
def tally(key: str, own: Tally) -> Tally:
    own.key = key
    own.numbers.append(len(own.numbers) + 1)
    return own


@wallaroo.key_extractor("first of the tally")
def tally_key(event: Tally) -> str:
    return event.key


class Last:
    def __init__(self) -> None:
        self.key = ""
        self.lengths: list[int] = []


@wallaroo.state_computation("kept", state=Last)
def keep(event: Tally, own: Last) -> str:
    """Alter the event as well: it is ours, wherever it was emitted."""
    own.key = event.key
    own.lengths.append(len(event.numbers))
    shown = f"{event.key} {','.join(map(str, event.numbers))}"
    event.numbers.clear()
    return shown


@wallaroo.state_computation("number", state=Total)
def number(key: str, own: Total) -> str:
    own.count += 1
    return f"{key} {own.count}"


def _source() -> wallaroo.Pipeline[str]:
    return wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt"))


def totals() -> Application:
    return wallaroo.build_application(
        "totals", _source().key_by(by_itself).to(total).to_sink(wallaroo.StdoutSinkConfig(text))
    )


def handed_on() -> Application:
    pipeline = (
        _source()
        .key_by(by_itself)
        .to(tally)
        .key_by(tally_key)
        .to(keep)
        .to_sink(wallaroo.StdoutSinkConfig(text))
    )
    return wallaroo.build_application("handed on", pipeline)


def numbered() -> Application:
    return wallaroo.build_application(
        "numbered", _source().collect().to(number).to_sink(wallaroo.StdoutSinkConfig(text))
    )
