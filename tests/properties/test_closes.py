"""Connections that close, in a real spool: where that happened follows from the log alone.

Any cut into batches, any number of tasks, attempts that die, an ingress that ends, and whatever was
known of closed connections when a batch began, give the results of one batch.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.sampling import sampled
from wallaroo.aggregations import Collect
from wallaroo.api.application import Application
from wallaroo.ingress.source_store import ConnectionNumbers
from wallaroo.protocols.framing import framer
from wallaroo.sources.log import Position, Records
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spool.writer import SpoolWriter
from wallaroo.testing.local_runner.runner import Input, LocalRunner

pytestmark = pytest.mark.usefixtures("ahead")

Event = tuple[str, int, int]  # key, second, number


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> Event:
    key, second, number = payload.decode().split()
    return key, int(second), int(number)


def second_of(event: Event) -> int:
    return wallaroo.seconds(event[1])


@wallaroo.key_extractor
def by_key(event: Event) -> str:
    return event[0]


class Seen:
    def __init__(self) -> None:
        self.numbers: list[int] = []


@wallaroo.state_computation(name="seen", state=Seen)
def seen(event: Event, own: Seen, context: wallaroo.Context) -> str:
    own.numbers.append(event[2])
    context.set_timer_after("quiet", wallaroo.seconds(4))
    return f"{event} after {own.numbers} at {context.event_time} behind {context.watermark}"


@seen.on_timer
def quiet(own: Seen, context: wallaroo.Context, name: str) -> str:
    return f"{context.key!r} quiet after {own.numbers} at {context.event_time}"


@seen.on_end
def ended(own: Seen, context: wallaroo.Context) -> str:
    return f"{context.key!r} ended after {own.numbers} at {context.event_time}"


def application() -> Application:
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "0", decode))
    timed = source.with_event_time(second_of, allow_before_1980=True)
    windows = wallaroo.range_windows(wallaroo.seconds(5))
    sums, late = (
        timed.key_by(by_key)
        .to(windows.over(Collect(), name="windows", with_window=True))
        .with_late_events()
    )
    return wallaroo.build_application(
        "closes",
        timed.key_by(by_key).to(seen).to_sink(wallaroo.StdoutSinkConfig(name="seen")),
        sums.map(str, name="sums").to_sink(wallaroo.StdoutSinkConfig(name="sums")),
        late.map(str, name="late").to_sink(wallaroo.StdoutSinkConfig(name="late")),
    )


PLAN = application().plan
FRAME = framer(PLAN.sources[0].config.wire_framing)


class Ingress:
    """The writer of the spool, and its clients, by name."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._clients: dict[int, int] = {}
        self._open()

    def _open(self) -> None:
        self.writer = SpoolWriter(self._folder, is_durable=False)
        self._numbers = ConnectionNumbers(
            self._folder,
            self.writer.following,
            has_events=self.writer.position.events > 0,
            closed_s=0.0,
        )

    def send(self, client: int, events: list[bytes]) -> None:
        if client not in self._clients:
            self._clients[client] = self._numbers.opened()
        number = self._clients[client]
        closed = b"" if self._numbers.is_stated else self._numbers.statement()
        self.writer.append(b"".join(map(FRAME, events)), len(events), 0, number, closed=closed)
        self._numbers.appended(number)
        self.writer.publish()

    def close(self, client: int) -> None:
        if client in self._clients:
            self._numbers.closed(self._clients.pop(client))

    def note(self) -> None:
        """Write the file beside the log."""
        self._numbers.note_closed(self.writer.position.events)

    def restart(self) -> None:
        self.writer.close()
        self._clients.clear()
        self._open()


class Reader:
    """The batches of one run over the spool."""

    def __init__(self, folder: Path):
        self.log = SpoolLog("in", folder, "", framing=PLAN.sources[0].config.wire_framing)
        self.at = self.log.beginning()
        self.outputs: dict[int, list[str]] = {}
        self._runner = LocalRunner(PLAN)

    def batch(
        self, events_max: int, tasks: int, *, is_final: bool = False, dies: bool = False
    ) -> None:
        """Read on, with what is known now of the connections that have closed."""
        end = self.log.advance(self.at, events_max)
        lists = self.log.split(self.at, end, tasks)
        pieces = [
            [_input(each) for part in parts for each in self.log.read(part)] for parts in lists
        ]
        self._know_ended(self.at)
        for _ in range(1 + dies):
            result = self._runner.run_batch(pieces, tasks, is_final=is_final)
        self._runner.commit(result)
        for sink, outputs in result.outputs.items():
            self.outputs.setdefault(sink, []).extend(map(bytes.decode, outputs))
        self.at = end

    def _know_ended(self, start: Position) -> None:
        time = self._runner.time
        if "in" in time.sources:
            ended = self.log.ended(time.sources["in"].partitions.keys(), start)
            self._runner.time = time.with_partitions("in", 0, ended=ended)

    @property
    def results(self) -> list[list[str]]:
        seen, *others = (self.outputs.get(sink, []) for sink in range(3))
        return [sorted(seen), *map(sorted, others)]


def _input(records: Records) -> Input:
    return Input(0, records.frames, 0, str(records.partition), ended_of=records.ended_of)


CLIENTS = 3
STEPS = ["send"] * 10 + ["close"] * 5 + ["batch"] * 5 + ["note"] * 4 + ["restart", "die"]
ALL = 1 << 30


def history_of(seed: int) -> list[tuple[str, Any]]:
    """Return what clients and the ingress do, and where batches begin; clients lag differently."""
    chance = random.Random(seed)
    drift = chance.choice([0, 1, 3])
    history: list[tuple[str, Any]] = []
    for number in range(chance.randint(3, 40)):
        what = chance.choice(STEPS)
        client = chance.randrange(CLIENTS)
        second = 5 * client + number * drift
        if what == "send":
            ats = [second + chance.randint(0, 9) for _ in range(chance.choice([1, 1, 3]))]
            events = [f"{chance.choice('ab')} {at} {number}".encode() for at in ats]
            history.append((what, (client, events)))
        elif what == "batch":
            history.append((what, (chance.choice([1, 4, ALL, ALL]), chance.randint(1, 3))))
        else:
            history.append((what, client))
    return history


def read_while_written(folder: Path, seed: int) -> list[list[str]]:
    """Play a history; return the results of its batches, and of those that read the rest."""
    ingress = Ingress(folder)
    reader = Reader(folder)
    dies = False
    for what, how in history_of(seed):
        if what == "send":
            ingress.send(*how)
        elif what == "close":
            ingress.close(how)
        elif what == "restart":
            ingress.restart()
        elif what == "note":
            ingress.note()
        elif what == "die":
            dies = True
        else:
            reader.batch(*how, dies=dies)
            dies = False
    ingress.writer.close()
    chance = random.Random(-seed)
    while reader.at != reader.log.head().position:
        reader.batch(chance.randint(1, 9), chance.randint(1, 3))
    reader.batch(ALL, 2, is_final=True)
    return reader.results


@pytest.mark.parametrize("first", sampled([0], [100, 200, 300]))
def test_where_connections_close_follows_from_the_log(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 100):
        folder = tmp_path / str(seed)
        found = read_while_written(folder, seed)

        whole = Reader(folder)
        whole.batch(ALL, 1, is_final=True)

        assert found == whole.results, f"seed {seed}"
