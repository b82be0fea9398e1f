"""A source that several hosts receive: planned, read over links that break, let go."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.spool.remote.conftest import NEVER, Proxy, Served
from wallaroo.errors import CheckpointError
from wallaroo.protocols.framing import Framing
from wallaroo.sources.joined.hosts import (
    Committed,
    Farewell,
    IngressHost,
    IngressHosts,
    RangePlace,
)
from wallaroo.sources.joined.log import SeveralSpools, hosts_of
from wallaroo.sources.log import CutShortError, Head, Position, Range, Reached
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spool import Boundary, SpoolReader
from wallaroo.spool.connections import ClosedConnections
from wallaroo.spool.welcomed import WelcomedHosts
from wallaroo.spool.writer import SpoolWriter

FRAMING = Framing(1, ">B", 255)
HELLO_BYTES = 200  # of a server, before the first range


class Joined:
    """A source with an own spool and that of one host, behind a network that breaks."""

    def __init__(self, served: Served, own: int, sizes: list[int], every: int):
        """Fill the spools: ``own`` events here, chunks of ``sizes`` there, of which the driver
        knows every so many.
        """
        self.source = served.new_source()
        self._served = served
        self.secret = served.secret
        here = served.root.parent / "own"
        self.folder = here / f"{self.source}.spool"
        _fill(self.folder, [own])
        self.bounds = _fill(served.folder(self.source), sizes)
        self.own = SpoolLog(self.source, self.folder, "", framing=FRAMING)
        self.hosts = IngressHosts([self.source], here, lambda: None)
        self.host: IngressHost
        self.every = every
        self.log = SeveralSpools(self.own, self.secret, self.hosts, read_s=0.1)
        self.connect(served.address)

    def connect(self, address: tuple[str, int]) -> None:
        """Let the host report what it holds."""
        self.host = self.hosts.connected("edge/00", object(), RangePlace(address, ""))
        head = SpoolReader(self._served.folder(self.source)).head()
        self.host.parts[self.source].report(head, [*self.bounds[:: self.every], self.bounds[-1]])

    def read(self, ranges: list[list[Range]]) -> tuple[dict[str, bytes], dict[str, Reached]]:
        """Read as a task does, with a copy of the log: frames by part, and what was cut short."""
        log = pickle.loads(pickle.dumps(self.log))
        frames: dict[str, bytes] = {}
        reached = {}
        for part in (part for parts in ranges for part in parts):
            try:
                for records in log.read(part):
                    frames[part.partition] = frames.get(part.partition, b"") + records.frames
            except CutShortError as error:
                reached[part.partition] = error.reached
        return frames, reached


def _fill(folder, sizes: list[int]) -> list[Boundary]:  # type: ignore[no-untyped-def]
    writer = SpoolWriter(folder, is_durable=False, segment_bytes_max=100_000)
    bounds = [writer.position]
    number = 0
    for size in sizes:
        frames = b"".join(bytes([1, (number + n) % 251]) for n in range(size))
        writer.append(frames, size, 1, 7, b"note")
        number += size
        bounds.append(writer.position)
    writer.publish()
    writer.close()
    return bounds


def test_a_host_states_which_of_its_own_connections_have_closed(served: Served) -> None:
    joined = Joined(served, 1, [1], 1)
    writer = SpoolWriter(served.folder(joined.source), is_durable=False)
    writer.append(bytes([1, 9]), 1, 1, 8, closed=ClosedConnections(0, frozenset({7})).stored)
    writer.publish()
    joined.bounds.append(writer.position)
    writer.close()
    joined.connect(served.address)

    here = joined.log.reconcile(joined.log.beginning())
    ranges = joined.log.split(here, joined.log.advance(here, 100), 2)
    log = pickle.loads(pickle.dumps(joined.log))
    records = [records for parts in ranges for part in parts for records in log.read(part)]
    [ended_of] = [each.ended_of for each in records if each.ended_of]

    assert pickle.loads(pickle.dumps(ended_of))(["7", "edge/00/7", "edge/00/8", "edge/00/"]) == [
        "edge/00/7"
    ]


def _numbers(events: int) -> bytes:
    return b"".join(bytes([1, n % 251]) for n in range(events))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    own=st.integers(1, 60),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=40),
    every=st.integers(1, 9),
    steps=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 5)), min_size=1),
)
def test_batches_read_each_event_once_in_order(
    served: Served, own: int, sizes: list[int], every: int, steps: list[tuple[int, int]]
) -> None:
    """Whatever boundaries the driver knows, and however batches are cut."""
    joined = Joined(served, own, sizes, every)
    log = joined.log
    here = log.reconcile(log.beginning())
    assert hosts_of(here) == ["edge"]
    frames: dict[str, bytes] = {}
    for number in range(1000):
        events_max, pieces = steps[number % len(steps)]
        there = log.advance(here, events_max)
        ranges = log.split(here, there, pieces)
        assert len(ranges) <= pieces
        assert sum(part.events for parts in ranges for part in parts) == there.events - here.events
        assert there.events - here.events <= events_max + 1  # a part has one event at least
        got, reached = joined.read(ranges)
        assert not reached
        for key, content in got.items():
            frames[key] = frames.get(key, b"") + content
        here = Position.from_json(there.to_json())
        if not log.backlog(here):
            break
    assert frames == {"": _numbers(own), "edge/00": _numbers(sum(sizes))}
    assert log.head().position.events == here.events == own + sum(sizes)


@pytest.fixture
def broken(served: Served) -> Iterator[Proxy]:
    proxy = Proxy(served.address, [HELLO_BYTES + 700_000], cuts_all_at=10)
    yield proxy
    proxy.close()


def test_a_batch_ends_where_its_host_was_lost(served: Served, broken: Proxy) -> None:
    """What was read counts, to the event; the next batches read without the host, then with it."""
    events = 500 * 1000
    joined = Joined(served, 10, [1000] * 500, 7)
    joined.connect(broken.address)
    log = joined.log
    start = log.reconcile(log.beginning())
    log.committed(start, None)
    end = log.advance(start, 10 * events)
    got, reached = joined.read(log.split(start, end, 2))
    cut = log.cut_short(start, end, reached)
    read = len(got["edge/00"]) // 2
    assert 0 < read < events
    assert got["edge/00"] == _numbers(read)
    assert cut.events == 10 + read
    assert log.advance(cut, events) == cut
    assert log.backlog(cut) == 0
    assert "cannot be read by tasks" in log.head().ingresses["edge"]
    assert log.partitions(cut) == {"edge/00/"}  # time waits for the rest

    joined.hosts.disconnected(joined.host, joined.host.session or object(), "it vanished")
    assert "is disconnected (it vanished)" in log.head().ingresses["edge"]
    joined.connect(served.address)
    joined.host._held_until = 0.0  # the five seconds are over
    rest, reached = joined.read(log.split(cut, log.advance(cut, 10 * events), 2))
    assert not reached
    assert got["edge/00"] + rest["edge/00"] == _numbers(events)


def test_nothing_is_read_of_a_host_that_is_lost_at_once(served: Served) -> None:
    """The batch stays where it was in that part, also inside of a chunk."""
    joined = Joined(served, 10, [1000] * 5, 2)
    log = joined.log
    here = log.advance(log.reconcile(log.beginning()), 100)
    proxy = Proxy(served.address, cuts_all_at=10)
    joined.connect(proxy.address)
    end = log.advance(here, 100)
    _, reached = joined.read(log.split(here, end, 3))
    cut = log.cut_short(here, end, reached)
    assert cut.place["parts"]["edge/00"] == here.place["parts"]["edge/00"]
    proxy.close()


def test_a_partition_waits_for_a_host_that_is_disconnected(served: Served) -> None:
    """Until all is read that the host held when it came back; those of closed clients end."""
    joined = Joined(served, 10, [100] * 5, 1)
    log = joined.log
    here = log.advance(log.reconcile(log.beginning()), 100)
    assert log.partitions(here) == {"edge/00/"}  # it has just connected
    end = log.advance(here, NEVER)
    assert log.partitions(end) == frozenset()
    assert log.ended(["edge/00/", "edge/00/7"], end) == ["edge/00/"]
    log.committed(end, None)
    joined.hosts.disconnected(joined.host, joined.host.session or object(), "x")
    assert log.partitions(end) == {"edge/00/"}
    assert log.ended(["edge/00/", "west/11/7", "7"], end) == ["west/11/7"]


@pytest.mark.parametrize("has_reported", [True, False])
def test_a_host_that_vanishes_before_a_commit_knows_it_is_part_of_the_next_one(
    served: Served, has_reported: bool
) -> None:
    """It may have acknowledged input: its name stays taken, and time waits for it."""
    joined = Joined(served, 10, [100] * 5, 1)
    log = joined.log
    host = joined.host
    if not has_reported:
        host = joined.hosts.connected("edge/00", object(), RangePlace(served.address, ""))
        assert hosts_of(log.reconcile(log.beginning())) == []  # not before it has, or is away
    joined.hosts.disconnected(host, host.session or object(), "it vanished")
    assert joined.hosts.named("edge") is host
    here = log.reconcile(log.beginning())
    assert hosts_of(here) == ["edge"]
    log.committed(here, None)
    assert "is disconnected (it vanished)" in log.head().ingresses["edge"]
    assert log.partitions(here) == {"edge/00/"}
    assert log.backlog(here) == 10

    joined.connect(served.address)
    got, _ = joined.read(log.split(here, log.advance(here, NEVER), 2))
    assert got["edge/00"] == _numbers(500)


def test_a_host_that_vanishes_while_a_batch_lists_it_keeps_its_name(served: Served) -> None:
    """The commit of that batch finds the host that it knows, and no second one."""
    joined = Joined(served, 10, [100], 1)
    log = joined.log
    here = log.reconcile(log.beginning())
    joined.hosts.disconnected(joined.host, joined.host.session or object(), "it vanished")
    log.committed(here, None)
    assert joined.hosts.all() == [joined.host]
    assert joined.host.cause == "it vanished"


def test_a_host_that_no_commit_knows_is_given_up_as_any_other(served: Served) -> None:
    """Its folder never joins again, and its name is free."""
    joined = Joined(served, 10, [100], 1)
    log = joined.log
    joined.hosts.disconnected(joined.host, joined.host.session or object(), "it vanished")
    joined.host.farewell = Farewell.LOST
    here = log.beginning()
    while (changed := log.reconcile(here)) is not here:
        log.committed(changed, None)
        here = changed
    assert joined.host.has_left([joined.source])
    assert joined.hosts.left_of("00") == {joined.source}
    assert joined.hosts.named("edge") is None


def test_a_host_that_no_commit_knows_is_listed_by_the_next_run(served: Served) -> None:
    """It was let in before the run ended: time waits for it until it is back."""
    joined = Joined(served, 10, [100], 1)
    root = joined.folder.parent
    joined.hosts.welcome("edge/00")
    hosts = IngressHosts([joined.source], root, lambda: None)
    log = SeveralSpools(joined.own, joined.secret, hosts)
    here = log.reconcile(log.beginning())
    assert hosts_of(here) == ["edge"]
    assert log.partitions(here) == {"edge/00/"}
    log.committed(here, None)
    assert WelcomedHosts(root).keys() == []  # from then on the commits say it


def test_a_host_that_a_commit_knows_of_one_source_alone_is_listed_by_the_next_run(
    tmp_path: Path,
) -> None:
    """A source that the application has since then: its input was acknowledged, too."""
    hosts = IngressHosts(["a", "b"], tmp_path, lambda: None)
    hosts.commit("a", {"edge/00": Committed()}, ())
    hosts.welcome("edge/00")
    hosts.commit("a", {"edge/00": Committed()}, ())
    (host,) = IngressHosts(["a", "b"], tmp_path, lambda: None).all()
    assert host.key == "edge/00"
    assert host.has_joined
    hosts.commit("b", {"edge/00": Committed()}, ())
    assert IngressHosts(["a", "b"], tmp_path, lambda: None).all() == []
    hosts.welcome("edge/00")
    assert IngressHosts(["a", "b"], tmp_path, lambda: None).all() == []


def test_a_host_leaves_once_it_is_read_and_never_joins_again(served: Served) -> None:
    """Its events stay counted; its id is kept."""
    joined = Joined(served, 10, [100] * 5, 1)
    log = joined.log
    joined.host.farewell = Farewell.LEAVING
    here = log.reconcile(log.beginning())
    assert log.reconcile(here) is here
    end = log.advance(here, NEVER)
    gone = log.reconcile(end)
    assert hosts_of(gone) == []
    assert gone.events == end.events == 510
    assert log.reconcile(gone) is gone
    log.committed(gone, None)
    assert joined.host.has_left([joined.source])
    assert joined.hosts.left_of("00") == {joined.source}


def test_a_log_without_hosts_keeps_plain_positions(served: Served) -> None:
    """A run that no host has joined commits what it always did, and reads it."""
    joined = Joined(served, 10, [100], 1)
    none = IngressHosts([joined.source], served.root.parent / "none", lambda: None)
    alone = SeveralSpools(joined.own, joined.secret, none)
    start = alone.beginning()
    assert alone.reconcile(start) is start
    assert alone.advance(start, NEVER) == joined.own.advance(start, NEVER)
    known = joined.log.reconcile(start)
    with pytest.raises(CheckpointError, match="only a run with --ingress-listen can read"):
        joined.own.require(known)
    assert alone.backlog_events(start, Head(known)) == 0


def test_a_host_has_left_once_all_sources_let_it_go(tmp_path: Path) -> None:
    """Until then its folder may only leave; one that is lost goes from those that know it."""
    hosts = IngressHosts(["a", "b"], tmp_path, lambda: None)
    edge = hosts.connected("edge/00", object(), RangePlace(("127.0.0.1", 1), ""))
    for source in ("a", "b"):
        hosts.commit(source, {"edge/00": Committed()}, ())
    hosts.commit("a", {}, ["00"])
    assert hosts.left_of("00") == {"a"}
    assert not edge.has_left(hosts.sources)
    hosts.commit("b", {}, ["00"])
    assert edge.has_left(hosts.sources)

    hosts.commit("b", {"west/11": Committed()}, ())
    west = hosts.get("west/11")
    west.farewell = Farewell.LOST
    assert not west.has_left(hosts.sources)
    hosts.commit("b", {}, ["11"])
    assert west.has_left(hosts.sources)
    assert hosts.named("west") is None
