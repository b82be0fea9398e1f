"""A Redis stream is the one that was read, and lost nothing unread, or it is noticed: on a real
server.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.connectors.redis.server import RedisServer, running_redis
from tests.unit.sources.own import copying
from wallaroo.errors import PeerError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sources import RedisSourceConfig

Eventually = Callable[..., None]
pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is missing"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    connection: Any = redis.Redis.from_url(server.url)
    connection.flushall()
    yield connection
    connection.close()


def add(client: Any, first: int, last: int, text: str = "n") -> None:
    """Add entries with ids of our own: first-0 to last-0."""
    with client.pipeline(transaction=False) as together:  # an answer each takes long on a busy core
        for number in range(first, last + 1):
            together.xadd("in", {"value": f'"{text}{number}"'}, id=f"{number}-0")
        together.execute()


class Reading:
    """A feed, and what it gave."""

    def __init__(self, server: RedisServer, resume: bytes = b"", **options: Any):
        config: RedisSourceConfig[str] = RedisSourceConfig(
            "items", "in", server.url, Json(str).decoder, field="value", **options
        )
        self.feed = config.open_feed(resume)
        self.resume = resume
        self.values: list[str] = []
        self.problems: list[str] = []
        self.skipped = 0

    def read(self) -> list[str]:
        run = self.feed.next_run()
        assert run is not None
        frames = run.frames
        while frames:
            end = 4 + int.from_bytes(frames[:4], "big")
            self.values.append(frames[4:end].decode().strip('"'))
            frames = frames[end:]
        if run.events:  # a resume is stored with events only
            self.resume = run.resume
        self.skipped += run.skipped
        if run.problem:
            self.problems.append(run.problem)
        return self.values

    def look(self) -> None:
        """See often enough what there is: whatever can be noticed is."""
        for _ in range(3):
            self.read()


def of_five(server: RedisServer, client: Any, eventually: Eventually, **options: Any) -> Reading:
    """A feed that has read five entries."""
    add(client, 1, 5)
    reading = Reading(server, **options)
    eventually(lambda: len(reading.read()) == 5, "the entries")
    return reading


def made_again(client: Any, entries: int) -> None:
    client.delete("in")
    add(client, 1, entries, "again")


def made_again_without_it(client: Any, entries: int) -> None:
    """As by a producer that goes on with its ids: the entry that was read last is not there."""
    client.delete("in")
    add(client, 6, 5 + entries, "again")


def made_again_around_it(client: Any) -> None:
    """As many entries as before, and none of the id that was read last."""
    made_again(client, 4)
    client.xadd("in", {"value": '"again"'}, id="4-5")
    add(client, 6, 7, "again")


def flushed(client: Any) -> None:
    client.flushall()


def made_again_by_the_server(client: Any) -> None:
    client.flushall()
    for number in range(8):
        client.xadd("in", {"value": f'"{number}"'})


def restored(client: Any) -> None:
    """As from an RDB that was written when there were three entries."""
    client.delete("in")
    add(client, 1, 3)
    older = client.dump("in")
    client.restore("in", 0, older, replace=True)


REPLACED = [
    pytest.param(lambda client: made_again(client, 3), "its last id is 3-0", id="fewer"),
    pytest.param(lambda client: made_again(client, 8), "that entry is another one", id="more"),
    pytest.param(
        lambda client: made_again_without_it(client, 8), "8 entries were ever added", id="ids go on"
    ),
    pytest.param(
        lambda client: made_again_without_it(client, 2500),
        "2,500 entries were ever added, fewer than were read and wait",
        id="ids go on for long",
    ),
    pytest.param(made_again_around_it, "entry is not there and was not deleted", id="around it"),
    pytest.param(made_again_by_the_server, "fewer than were read and wait", id="later ids"),
    pytest.param(flushed, "it is gone", id="flushed"),
    pytest.param(restored, "its last id is 3-0", id="restored"),
]


@pytest.mark.parametrize(("replace", "words"), REPLACED)
def test_another_stream_is_refused_while_it_is_read_and_at_the_start(
    server: RedisServer,
    client: Any,
    eventually: Eventually,
    replace: Callable[[Any], None],
    words: str,
) -> None:
    reading = of_five(server, client, eventually)
    replace(client)
    sentence = rf"'in' at .* is not the one that was read until entry 5-0: .*{words}.*=.skip."
    for one in (reading, Reading(server, reading.resume)):
        with pytest.raises(PeerError, match=sentence):
            one.look()
    assert len(reading.values) == 5


@pytest.mark.parametrize(
    ("replace", "first", "last"),
    [(made_again, 1, 3), (made_again, 1, 8), (made_again_without_it, 6, 2505)],
)
def test_another_stream_is_read_from_its_start_where_loss_may_be_skipped(
    server: RedisServer,
    client: Any,
    eventually: Eventually,
    replace: Callable[[Any, int], None],
    first: int,
    last: int,
) -> None:
    reading = of_five(server, client, eventually, on_data_loss="skip")
    replace(client, last - first + 1)
    new = [f"again{number}" for number in range(first, last + 1)]
    eventually(lambda: len(reading.read()) == 5 + len(new), "the new entries")
    assert reading.values[5:] == new
    (problem,) = reading.problems
    assert problem.endswith("it is read from its start")
    reading.look()
    Reading(server, reading.resume).look()
    assert len(reading.problems) == 1


def test_what_a_new_stream_lost_is_counted_though_its_ids_go_on(
    server: RedisServer, client: Any, eventually: Eventually
) -> None:
    """20 entries were added and 5 read, so 11 are missing beside the 4 that wait."""
    reading = of_five(server, client, eventually)
    made_again_without_it(client, 20)
    client.xtrim("in", maxlen=4, approximate=False)
    with pytest.raises(PeerError, match="has lost 11 entries after 5-0 before they were read"):
        reading.look()
    skipping = Reading(server, reading.resume, on_data_loss="skip")
    eventually(lambda: len(skipping.read()) == 4, "what is left")
    assert skipping.skipped == 11


def trimmed(client: Any) -> None:
    client.xtrim("in", maxlen=4, approximate=False)


def deleted(client: Any) -> None:
    client.xdel("in", *(f"{number}-0" for number in range(7, 13)))


@pytest.mark.parametrize(("remove", "left"), [(trimmed, range(12, 16)), (deleted, (6, 13, 14, 15))])
def test_entries_that_were_removed_before_they_were_read_are_counted(
    server: RedisServer,
    client: Any,
    eventually: Eventually,
    remove: Callable[[Any], None],
    left: Any,
) -> None:
    reading = of_five(server, client, eventually)
    add(client, 6, 15)
    remove(client)
    words = "has lost 6 entries after .* before they were read.*on_data_loss='skip'"
    with pytest.raises(PeerError, match=words):
        Reading(server, reading.resume).look()
    skipping = Reading(server, reading.resume, on_data_loss="skip")
    eventually(lambda: len(skipping.read()) == 4, "what is left")
    assert skipping.values == [f"n{number}" for number in left]
    skipping.look()
    (problem,) = skipping.problems
    assert "6 entries" in problem
    assert problem.endswith("continued without them")
    assert skipping.skipped == 6
    Reading(server, skipping.resume, on_data_loss="skip").look()


def test_what_happens_to_a_stream_that_stays_is_no_reason(
    server: RedisServer, client: Any, eventually: Eventually
) -> None:
    add(client, 1, 3)
    client.xdel("in", "2-0")  # before anything was read
    reading = Reading(server)
    eventually(lambda: len(reading.read()) == 2, "the entries that are there")
    add(client, 4, 2500)
    eventually(lambda: len(reading.read()) == 2499, "the next entries")
    client.xdel("in", "2500-0", "2400-0")
    client.xtrim("in", maxlen=10, approximate=False)
    reading.look()
    reading = Reading(server, reading.resume)
    reading.look()
    client.xtrim("in", maxlen=0, approximate=False)
    reading.look()
    server.kill()
    server.start()
    add(client, 2501, 2502)
    eventually(lambda: reading.read() == ["n2501", "n2502"], "the last entries")
    client.xadd("in", {"other": "no value"}, id="2503-0")
    reading.look()
    Reading(server, reading.resume).look()


def test_a_position_of_an_earlier_version_adopts_the_stream_that_is_there(
    server: RedisServer, client: Any, eventually: Eventually
) -> None:
    add(client, 1, 8)
    reading = Reading(server, b"5-0")
    eventually(lambda: reading.read() == ["n6", "n7", "n8"], "the entries after it")
    reading.look()
    add(client, 9, 12)
    client.xtrim("in", maxlen=1, approximate=False)
    with pytest.raises(PeerError, match="has lost 3 entries after 8-0"):
        Reading(server, reading.resume).look()


def test_a_stream_may_come_later(server: RedisServer, client: Any, eventually: Eventually) -> None:
    for start in ("0", "$"):
        reading = Reading(server, start=start)
        reading.look()
        add(client, 1, 2)
        eventually(lambda one=reading: one.read() == ["n1", "n2"], "the entries")
        client.flushall()


def test_a_run_ends_with_the_sentence_when_its_stream_is_made_again(
    server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
) -> None:
    out = tmp_path / "out.txt"
    items: RedisSourceConfig[str] = RedisSourceConfig(
        "items", "in", server.url, Json(str).decoder, field="value"
    )
    add(client, 1, 5)
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    run = Run(copying(items, out), options, InProcessHost(1))
    run.begin()
    eventually(lambda: out.exists() and len(out.read_text().split()) == 5, "the entries")
    pipeline = client.pipeline(transaction=True)
    pipeline.delete("in")
    for number in range(1, 9):
        pipeline.xadd("in", {"value": '"again"'}, id=f"{number}-0")
    pipeline.execute()
    assert run.wait(400)
    assert "Source 'items': Redis stream 'in' at" in str(run.exception)
    again = Run(copying(items, out), options, InProcessHost(1))
    again.begin()
    assert again.wait(400)
    assert "is not the one that was read until entry 5-0" in str(again.exception)
    assert out.read_text().split() == ["n1", "n2", "n3", "n4", "n5"]
