"""Redis in and out, on a real server: each entry once, also where the server is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import wallaroo
from tests.connectors.file.files import staged
from tests.connectors.redis.child import BATCHES, ROWS, change_of
from tests.connectors.redis.server import RedisServer, running_redis
from tests.unit.serdes.orders import Item
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.errors import CheckpointError, PeerError, WallarooError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import Delete, RedisSinkConfig
from wallaroo.sources import RedisEntry, RedisSourceConfig
from wallaroo.spark.local_cluster.hosts import free_ports

ROOT = Path(__file__).parents[3]
Eventually = Callable[..., None]
needs_server = [
    pytest.mark.redis,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is missing"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    made: Any = redis.Redis.from_url(server.url)
    made.flushall()
    yield made
    made.close()


@wallaroo.encoder
def as_fields(item: Item) -> object:
    return {"name": item.name, "count": item.count}


def copying(server: RedisServer) -> wallaroo.Application:
    items = RedisSourceConfig("items", "in", server.url, Json(Item).decoder, field="json")
    sink = RedisSinkConfig(server.url, as_fields, stream="out")
    return wallaroo.build_application("items", wallaroo.source("items", items).to_sink(sink))


def names(client: Any) -> list[str]:
    return [fields[b"name"].decode() for _, fields in client.xrange("out")]


def entries(client: Any) -> list[str]:
    return [fields[b"value"].decode() for _, fields in client.xrange("out")]


class Putting:
    """A sink's committer, and commits for it."""

    def __init__(
        self,
        server: RedisServer,
        staging: Path,
        sink: str = "s",
        line: str = "a",
        **options: Any,
    ):
        self.config = RedisSinkConfig(server.url, **(options or {"stream": "out"}))
        self.staging = staging
        self.sink = sink
        self.line = line
        self.restart(-1)

    def restart(self, last: int) -> None:
        self.committer = self.config.committer(self.sink, self.staging, True)
        self.committer.recover(history_to(last, self.line), [])

    def commit(self, batch: int, *outputs: Any) -> None:
        encode: Any = self.config.encoder
        packed = [encode.function(output) for output in outputs]
        tokens = staged(self.config, self.staging, batch, packed)  # type: ignore[arg-type]
        self.committer.commit(commit_of(batch, self.line), tokens)


class TestOnAServer:
    pytestmark = needs_server

    def test_each_entry_is_copied_once_while_the_server_is_killed(
        self, server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
    ) -> None:
        def add(first: int, last: int) -> None:
            for number in range(first, last):
                client.xadd("in", {"json": f'{{"name": "n{number}"}}'})

        add(0, 1500)
        client.xadd("in", {"other": "no item"})
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(copying(server), options, InProcessHost(2))
        run.begin()
        eventually(lambda: len(names(client)) == 1500, "the first entries")
        server.kill()
        eventually(lambda: "Redis at" in run.status().waiting_for, "the run says so")
        server.start()
        add(1500, 1600)
        eventually(lambda: len(names(client)) == 1600, "the next entries")
        run.stop()
        assert run.wait(400)
        assert run.exception is None
        add(1600, 1601)
        again = Run(copying(server), options, InProcessHost(2))
        again.begin()
        eventually(lambda: len(names(client)) == 1601, "the last entry")
        again.stop()
        assert again.wait(400)
        assert names(client) == [f"n{number}" for number in range(1601)]

    def test_a_commit_is_put_once_and_a_lost_one_is_refused(
        self, server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
    ) -> None:
        config = RedisSinkConfig(server.url, hash="totals")
        encode: Any = config.encoder
        staging = tmp_path / "staging"
        tokens = staged(
            config,  # type: ignore[arg-type]
            staging,
            0,
            [encode.function(("a", 1)), encode.function(("b", "x"))],
            [encode.function(("a", None))],
        )
        committer = config.committer("s", staging, True)
        committer.recover(history_to(-1), [])
        committer.commit(commit_of(0), tokens)
        committer.close(180.0)
        assert client.hgetall("totals") == {b"b": b"x"}

        (staging / "left.json").unlink()  # as after a crash that lost what the outbox remembers
        again = staged(config, staging, 0, [encode.function(("b", "again"))])  # type: ignore[arg-type]
        restarted = config.committer("s", staging, True)
        restarted.recover(history_to(0), again)
        restarted.close(180.0)
        assert client.hgetall("totals") == {b"b": b"x"}

        behind = config.committer("s", tmp_path / "older", True)
        behind.recover(history_to(-1), [])
        assert isinstance(_broken(behind, eventually), CheckpointError)

    def test_a_server_that_returns_without_output_that_had_left_ends_the_run(
        self, server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
    ) -> None:
        """As after a fail-over to a replica that lagged behind, in mid-run and at the start."""
        putting = Putting(server, tmp_path / "outbox")
        putting.commit(0, "a")
        eventually(lambda: entries(client) == ["a"], "the first batch leaves")
        server.kill()
        shutil.copytree(server.folder / "appendonlydir", tmp_path / "copy")
        server.start()
        putting.commit(1, "b")
        eventually(lambda: entries(client) == ["a", "b"], "the second batch leaves")
        eventually(lambda: not putting.committer.backlog(), "the sink knows")
        server.kill()
        shutil.rmtree(server.folder / "appendonlydir")
        shutil.copytree(tmp_path / "copy", server.folder / "appendonlydir")
        server.start()
        putting.commit(2, "c")
        words = "output up to batch 1 has left, and wallaroo:ledger .* records only up to batch 0"
        assert re.search(words, str(_broken(putting.committer, eventually)))
        putting.restart(2)
        assert re.search(words, str(_broken(putting.committer, eventually)))
        assert entries(client) == ["a"]

    @pytest.mark.parametrize("point", ["redis.exec:2", "redis.executed:2", "redis.exec:3"])
    def test_a_driver_that_dies_around_a_transaction_puts_each_output_once(
        self, server: RedisServer, client: Any, tmp_path: Path, point: str
    ) -> None:
        module = "tests.connectors.redis.child"
        command = [sys.executable, "-m", module, str(tmp_path), server.url]
        dying = subprocess.run(command, cwd=ROOT, env={**os.environ, "WALLAROO_FAULT": point})
        assert dying.returncode == -signal.SIGKILL, "the point was not passed"
        subprocess.run(command, cwd=ROOT, check=True)
        got = [fields[b"value"].decode() for _, fields in client.xrange("out")]
        assert got == [f"{batch} {n}" for batch, size in enumerate(BATCHES) for n in range(size)]

    @pytest.mark.parametrize("point", ["redis.exec:2", "redis.executed:2", "redis.executed:3"])
    def test_rows_and_deletions_are_put_once_though_driver_and_server_are_killed(
        self, server: RedisServer, client: Any, tmp_path: Path, point: str
    ) -> None:
        """Each of them is one DEL, with or without the row that comes after it."""
        module = "tests.connectors.redis.child"
        command = [sys.executable, "-m", module, str(tmp_path), server.url, "row:{id}"]
        client.config_resetstat()
        dying = subprocess.run(command, cwd=ROOT, env={**os.environ, "WALLAROO_FAULT": point})
        assert dying.returncode == -signal.SIGKILL, "the point was not passed"
        put = client.info("commandstats")["cmdstat_del"]["calls"]
        assert 0 < put < sum(BATCHES)
        server.kill()
        server.start()
        subprocess.run(command, cwd=ROOT, check=True)
        put += client.info("commandstats")["cmdstat_del"]["calls"]
        assert put == sum(BATCHES)
        due: dict[bytes, dict[bytes, bytes]] = {}
        for batch, size in enumerate(BATCHES):
            for change in (change_of(batch, number) for number in range(size)):
                row = change.key if isinstance(change, Delete) else change
                key = f"row:{row['id']}".encode()
                due.pop(key, None)
                if change is row:
                    due[key] = {name.encode(): str(value).encode() for name, value in row.items()}
        assert due
        assert len(due) < ROWS
        assert {key: client.hgetall(key) for key in client.keys("row:*")} == due

    def test_a_source_whose_key_has_another_type_is_refused_with_its_name(
        self, server: RedisServer, client: Any
    ) -> None:
        client.set("out", "a text")
        feed = RedisSourceConfig("items", "out", server.url).open_feed(b"")
        with pytest.raises(PeerError, match=r"cannot read stream 'out': .*WRONGTYPE"):
            feed.next_run()

    def test_output_that_a_key_of_another_type_refused_is_put_once_after_the_correction(
        self, server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
    ) -> None:
        client.set("out", "a text")
        putting = Putting(server, tmp_path)
        putting.commit(0, "a", "b")
        error = str(_broken(putting.committer, eventually))
        assert "refuses batch 0 for 'out'" in error
        assert "WRONGTYPE" in error
        client.delete("out")
        putting.restart(0)
        putting.commit(1, "c")
        putting.committer.close(180.0)
        assert entries(client) == ["a", "b", "c"]

    def test_output_is_put_once_where_redis_takes_some_of_a_commit(
        self, server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
    ) -> None:
        client.xadd("out", {"value": "mine"}, id=f"{2**64 - 1}-{2**64 - 3}")
        putting = Putting(server, tmp_path)
        putting.commit(0, "a", "b", "c", "d")  # there is room for two ids
        assert "exhausted the last possible ID" in str(_broken(putting.committer, eventually))
        assert entries(client) == ["mine", "a", "b"]
        client.delete("out")
        putting.restart(0)
        putting.commit(1, "e")
        putting.committer.close(180.0)
        assert entries(client) == ["c", "d", "e"]

    def test_a_commit_that_is_there_in_part_is_not_taken_for_another_one(
        self, server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
    ) -> None:
        client.xadd("out", {"value": "mine"}, id=f"{2**64 - 1}-{2**64 - 2}")
        first = Putting(server, tmp_path / "first")
        first.commit(0, "a", "b")
        assert "exhausted the last possible ID" in str(_broken(first.committer, eventually))
        copy = Putting(server, tmp_path / "copy", line="other")
        copy.commit(0, "x")
        with pytest.raises(CheckpointError, match="holds output of another commit 0 of sink 's'"):
            raise _broken(copy.committer, eventually)

    @pytest.mark.parametrize(
        ("setting", "bad", "good"), [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")]
    )
    def test_a_server_that_takes_no_writes_is_waited_for(
        self,
        server: RedisServer,
        client: Any,
        tmp_path: Path,
        eventually: Eventually,
        setting: str,
        bad: str,
        good: str,
    ) -> None:
        client.config_set(setting, bad)
        try:
            putting = Putting(server, tmp_path)
            putting.commit(0, "a", "b")
            waits = lambda: "Redis at" in putting.committer.status().waiting_for  # noqa: E731
            eventually(waits, "it is waited for")
        finally:
            client.config_set(setting, good)
        putting.committer.close(180.0)
        assert entries(client) == ["a", "b"]

    def test_a_row_replaces_the_hash_at_its_key(
        self, server: RedisServer, client: Any, tmp_path: Path
    ) -> None:
        put = Putting(server, tmp_path, key="user:{id}:{part}")
        first = {"id": 1, "part": "a", "old": "x"}
        put.commit(0, first, {"id": 2, "part": "a", "n": 2.5}, {"id": 3, "part": "b"})
        put.commit(1, {"id": 1, "part": "a", "new": b"y", "none": None}, Delete((2, "a")))
        put.commit(2, Delete({"id": 3, "part": "b", "n": 1}), Delete((9, "z")))
        put.committer.close(60)
        assert client.keys("user:*") == [b"user:1:a"]
        wanted = {b"id": b"1", b"part": b"a", b"new": b"y"}
        assert client.hgetall("user:1:a") == wanted

    def test_a_field_is_set_as_the_value_of_its_key(
        self, server: RedisServer, client: Any, tmp_path: Path
    ) -> None:
        put = Putting(server, tmp_path, key="total:{word}", value="total")
        put.commit(0, {"word": "a", "total": 1}, {"word": "b", "total": 2}, Delete("a"))
        put.commit(1, {"word": "b", "total": 3}, {"word": "c", "total": 4})
        put.committer.close(60)
        found = {key: client.get(key) for key in client.keys("total:*")}
        assert found == {b"total:b": b"3", b"total:c": b"4"}

    def test_a_deletion_removes_the_field_of_a_hash(
        self, server: RedisServer, client: Any, tmp_path: Path
    ) -> None:
        put = Putting(server, tmp_path, hash="h")
        put.commit(0, ("a", 1), ("b", 2), Delete("a"))
        put.committer.close(60)
        assert client.hgetall("h") == {b"b": b"2"}

    def test_a_row_that_redis_refuses_is_put_after_the_correction(
        self, server: RedisServer, client: Any, tmp_path: Path, eventually: Eventually
    ) -> None:
        """Lua cannot pass that many fields; those before it are put once."""
        client.set("list:0", "in the way")  # of another type: it is replaced
        put = Putting(server, tmp_path, key="list:{id}")
        wide = {"id": 1, **{f"f{n}": n for n in range(9000)}}
        put.commit(0, {"id": 0}, wide)
        assert "too many results to unpack" in str(_broken(put.committer, eventually))
        assert client.hgetall("list:0") == {b"id": b"0"}

    def test_sinks_that_share_a_ledger_do_not_disturb_each_other(
        self, server: RedisServer, client: Any, tmp_path: Path
    ) -> None:
        both = [Putting(server, tmp_path / name, name) for name in ("s", "t")]
        for batch in range(40):
            for putting in both:
                putting.commit(batch, *(str(n) for n in range(200)))
        for putting in both:
            putting.committer.close(180.0)
        assert client.xlen("out") == 2 * 40 * 200

    def test_what_was_there_is_not_read_from_the_end(
        self, server: RedisServer, client: Any
    ) -> None:
        client.xadd("in", {"n": "1"}, id="5-1")
        feed = RedisSourceConfig("items", "in", server.url, start="$").open_feed(b"")
        assert feed.next_run().events == 0  # type: ignore[union-attr]
        client.xadd("in", {"n": "2"}, id="6-1")
        run = feed.next_run()
        assert run is not None
        assert run.events == 1
        assert json.loads(run.resume)["after"] == "6-1"
        decode = RedisSourceConfig("items", "in", server.url).decoder.decode
        assert decode(run.frames[4:]) == RedisEntry("6-1", {b"n": b"2"})


def _broken(committer: Any, eventually: Eventually) -> WallarooError:
    raised: list[WallarooError] = []

    def is_broken() -> bool:
        try:
            committer.backlog()
        except WallarooError as error:
            raised.append(error)
        return bool(raised)

    eventually(is_broken, "the error")
    return raised[0]


def test_a_server_that_is_not_there_is_waited_for_and_named() -> None:
    (port,) = free_ports(1)
    run = (
        RedisSourceConfig("a", "in", f"redis://:secret@127.0.0.1:{port}/0?password=secret")
        .open_feed(b"")
        .next_run()
    )
    assert run is not None
    assert run.problem.startswith(f"Redis at redis://127.0.0.1:{port}/0: Error 111")
    assert run.pause_s > 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RedisSourceConfig("a", "", "redis://"), "stream='' is not a name"),
        (lambda: RedisSourceConfig("a", "s", "redis://", start="first"), "'first' is not an id"),
        (
            lambda: RedisSourceConfig("a", "s", "redis://", field="f"),
            "field and decoder go together",
        ),
        (
            lambda: RedisSourceConfig("a", "s", "redis://", on_data_loss="ask"),
            "on_data_loss='ask' is unknown",
        ),
        (lambda: RedisSinkConfig("redis://"), "Name one of them"),
        (lambda: RedisSinkConfig("redis://", hash="h", max_length=5), "cannot be kept"),
        (lambda: RedisSinkConfig("redis://", key="k:{a}", max_length=5), "cannot be kept"),
        (lambda: RedisSinkConfig("redis://", key="k:{a}", stream="s"), "Name one of them"),
        (lambda: RedisSinkConfig("redis://", hash="h", value="v"), "value='v' needs key="),
        (lambda: RedisSinkConfig("redis://", key="k"), "key='k': it names no field"),
        (lambda: RedisSinkConfig("redis://", key="{a!r}"), "{a} is not a field name"),
        (lambda: RedisSinkConfig("redis://", key="{a"), "expected '}'"),
    ],
)
def test_a_wrong_configuration_is_refused(make: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        make()


@pytest.mark.parametrize("query", ["db=x", "ssl_cert_reqs=x", "no_option=x"])
def test_an_address_that_cannot_be_read_is_named(tmp_path: Path, query: str) -> None:
    url = f"rediss://:secret@host?{query}"
    with pytest.raises(PeerError, match="the address cannot be read") as read:
        RedisSourceConfig("a", "s", url).open_feed(b"")
    with pytest.raises(PeerError, match="the address cannot be read") as put:
        RedisSinkConfig(url, stream="s").committer("s", tmp_path, True)
    assert "secret" not in f"{read.value}{put.value}"


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("wallaroo.connectors.redis.feed", "wallaroo.connectors.redis.committer"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PeerError, match=r"pip install redis"):
        RedisSourceConfig("a", "s", "redis://").open_feed(b"")
    with pytest.raises(PeerError, match=r"pip install redis"):
        RedisSinkConfig("redis://", stream="s").committer("s", tmp_path, True)


@pytest.mark.parametrize(
    ("options", "output", "words"),
    [
        ({"stream": "s"}, object(), "Redis takes bytes, str, int and float"),
        ({"stream": "s"}, {}, "needs a field"),
        ({"hash": "h"}, "value", r"must return \(field, value\)"),
        ({"stream": "s"}, Delete("a"), "a Delete needs a sink with key="),
        ({"hash": "h"}, Delete(("a", 1)), r"is not a key of \(field\)"),
        ({"key": "k:{a}"}, {"b": 1}, "the row has no 'a', which is of the key"),
        ({"key": "k:{a}"}, {"a": None}, "key column 'a' is None"),
        ({"key": "k:{a}"}, ("a", 1), "a row must be a dict, a dataclass or a named tuple"),
        ({"key": "k:{a}"}, Delete({"b": 1}), r"is not a key of \(a\)"),
        ({"key": "k:{a}"}, {"a": 1, "b": [1]}, "Redis takes bytes, str, int and float"),
        ({"key": "k:{a}", "value": "b"}, {"a": 1}, "no value in 'b'; a Delete removes its key"),
    ],
)
def test_an_output_that_does_not_fit_is_refused_in_the_step(
    options: Any, output: Any, words: str
) -> None:
    config = RedisSinkConfig("redis://", **options)
    assert config.encoder is not None
    with pytest.raises((TypeError, ValueError), match=words):
        config.encoder.function(output)
