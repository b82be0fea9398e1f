"""NATS in and out, with a real server: each message once while either side is killed."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from nats.js.errors import NotFoundError

import wallaroo
from tests.connectors.file.files import staged
from tests.connectors.nats.server import PROGRAM, NATSServer, running_nats
from tests.feeders import kill_feeders
from tests.forks import Forks
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of, history_to
from tests.unit.sources.own import copying
from wallaroo.connectors.nats.committer import LOOK_S, StreamPublisher
from wallaroo.connectors.nats.reader import PULL_MESSAGES
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.network.tls import TLS
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import NATSSinkConfig, SinkCommitter
from wallaroo.sinks.queued.at_least_once import Slice
from wallaroo.sinks.queued.system import DeliveryError
from wallaroo.sources import NATSMessage, NATSSourceConfig
from wallaroo.sources.feeds.inbox import EVENTS_MAX
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
DRAIN_S = 400.0
_numbers = count()


def source(stream: str, url: str, **options: Any) -> NATSSourceConfig[str]:
    return NATSSourceConfig("messages", stream, url, Json(str).decoder, **options)


def opened(config: NATSSinkConfig, folder: Path, last: int = -1) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(last), [])
    return committer


def tokens_of(config: NATSSinkConfig, folder: Path, batch: int, *outputs: Any) -> list[Any]:
    assert config.encoder is not None
    packed = [config.encoder.function(output) for output in outputs]
    return staged(config, folder, batch, packed)  # type: ignore[arg-type]  # any sink's


class Reading:
    """A feed, and what it gave."""

    def __init__(self, config: NATSSourceConfig[Any], resume: bytes = b""):
        self.feed: Any = config.open_feed(resume)
        self.resume = resume
        self.problem = ""
        self.came: list[bytes] = []
        self.given: list[Callable[[], None]] = []
        self.skipped = 0

    def read(self) -> list[bytes]:
        """Take a run; its events are not stored yet."""
        run = self.feed.next_run()
        frames = memoryview(run.frames)
        while frames:
            end = 4 + int.from_bytes(frames[:4], "big")
            self.came.append(bytes(frames[4:end]))
            frames = frames[end:]
        if run.events:
            self.resume = run.resume
        if run.stored is not None:
            self.given.append(run.stored)
        self.problem = run.problem
        self.skipped += run.skipped
        return self.came

    def store(self) -> None:
        """Say that all that came is stored."""
        for stored in self.given:
            stored()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NATSServer]:
    with running_nats(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.mark.nats
@pytest.mark.skipif(PROGRAM is None, reason="nats-server is missing")
class TestOnAServer:
    @pytest.fixture
    def stream(self) -> str:
        """The name of a new stream."""
        return f"stream{next(_numbers)}"

    @pytest.mark.parametrize(
        "retention", ["limits", pytest.param("workqueue", marks=pytest.mark.long)]
    )
    def test_each_message_is_copied_once_while_the_reader_and_the_server_are_killed(
        self,
        tmp_path: Path,
        server: NATSServer,
        stream: str,
        eventually: Eventually,
        retention: str,
    ) -> None:
        out = tmp_path / "out.txt"
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        server.create(stream, retention=retention)

        def add(first: int, last: int) -> None:
            server.put(f"{stream}.in", *(b'"m %d"' % n for n in range(first, last)))

        def came(count: int) -> bool:
            lines = out.read_text().splitlines() if out.exists() else []
            return len(lines) >= count

        add(0, 500)
        run = Run(copying(source(stream, server.url), out), options, InProcessHost(2))
        run.begin()
        eventually(lambda: came(500), "the first messages")
        kill_feeders()
        add(500, 600)
        eventually(lambda: came(600), "what came after the reader was killed")
        server.kill()
        eventually(lambda: server.place in run.status().waiting_for, "the run says so")
        server.start()
        add(600, 700)
        eventually(lambda: came(700), "what came after the server was killed")
        run.stop()
        assert run.wait(400)
        assert run.exception is None
        add(700, 701)
        again = Run(copying(source(stream, server.url), out), options, InProcessHost(2))
        again.begin()
        eventually(lambda: came(701), "the message that came in between")
        if retention == "workqueue":
            eventually(lambda: server.left(stream) == 0, "all are acknowledged")
        again.stop()
        assert again.wait(400)
        assert out.read_text().splitlines() == [f"m {number}" for number in range(701)]

    @pytest.mark.parametrize(
        "retention", [pytest.param("workqueue", marks=pytest.mark.long), "interest"]
    )
    def test_a_message_is_acknowledged_when_it_is_stored_not_before(
        self, server: NATSServer, stream: str, eventually: Eventually, retention: str
    ) -> None:
        server.create(stream, retention=retention)
        config = source(stream, server.url)
        reading = Reading(config)
        if retention == "interest":  # it keeps what it has a consumer for
            info = lambda jetstream: jetstream.consumers_info(stream)  # noqa: E731
            eventually(lambda: reading.read() or server.do(info), "the consumer is there")
        server.put(f"{stream}.in", b"1", b"2")
        eventually(lambda: reading.read() == [b"1", b"2"], "the messages")
        server.kill()
        eventually(lambda: reading.read() and server.place in reading.problem, "it says so")
        server.start()
        server.put(f"{stream}.in", b"3")
        eventually(lambda: reading.read() == [b"1", b"2", b"3"], "each once")
        assert server.left(stream) == 3, "none is stored, so none is acknowledged"
        later = Reading(config)  # as after a crash that lost what was not stored
        eventually(lambda: later.read() == [b"1", b"2", b"3"], "all of them again")
        later.store()
        eventually(lambda: later.read() and server.left(stream) == 0, "acknowledged")

    def test_what_is_stored_is_not_read_again_where_its_acknowledgement_was_lost(
        self, server: NATSServer, stream: str, eventually: Eventually
    ) -> None:
        server.create(stream, retention="workqueue")
        server.put(f"{stream}.in", b"1", b"2")
        reading = Reading(source(stream, server.url))
        eventually(lambda: reading.read() == [b"1", b"2"], "the messages")
        later = Reading(source(stream, server.url), reading.resume)
        eventually(lambda: not later.read() and server.left(stream) == 0, "acknowledged")
        assert later.came == []

    def test_one_subject_of_a_stream_with_all_that_a_message_has(
        self, server: NATSServer, stream: str, eventually: Eventually
    ) -> None:
        server.create(stream)
        server.put(f"{stream}.a", b"1")
        server.put(f"{stream}.b", b"2", b"3", b"4")
        config = NATSSourceConfig("m", stream, server.url, subject=f"{stream}.b", start=3)
        reading = Reading(config)
        eventually(lambda: len(reading.read()) == 2, "the messages")
        assert [config.decoder.decode(frame) for frame in reading.came] == [
            NATSMessage(f"{stream}.b", 3, {}, b"3"),
            NATSMessage(f"{stream}.b", 4, {}, b"4"),
        ]

    def test_what_was_there_is_not_read_from_the_end(
        self, server: NATSServer, stream: str, eventually: Eventually
    ) -> None:
        server.create(stream)
        server.put(f"{stream}.in", b"1")
        reading = Reading(source(stream, server.url, start=None))
        info = lambda jetstream: jetstream.consumers_info(stream)  # noqa: E731
        eventually(lambda: reading.read() or server.do(info), "it has begun")
        server.put(f"{stream}.in", b"2")
        eventually(reading.read, "a message")
        assert reading.came == [b"2"]

    def test_a_stream_that_was_made_again_ends_the_run(
        self, server: NATSServer, stream: str, eventually: Eventually
    ) -> None:
        server.create(stream)
        server.put(f"{stream}.in", b"1")
        reading = Reading(source(stream, server.url))
        eventually(reading.read, "a message")
        server.do(lambda jetstream: jetstream.delete_stream(stream))
        server.create(stream)
        server.put(f"{stream}.in", b"2", b"3", b"4")
        later = source(stream, server.url).open_feed(reading.resume)
        with pytest.raises(
            PeerError, match=r"was deleted and created again .* another --checkpoint"
        ):
            list(iter(later.next_run, None))
        with pytest.raises(PeerError, match=r"was deleted and created again|stream not found"):
            list(iter(reading.read, None))
        assert reading.came == [b"1"]

    def test_an_older_copy_of_a_stream_that_has_grown_ends_the_run(
        self, server: NATSServer, stream: str, tmp_path: Path, eventually: Eventually
    ) -> None:
        """Its last number is higher, but the message that was read last is another one."""
        server.create(stream)
        server.put(f"{stream}.in", b"1")
        data = server.folder / "jetstream"
        server.stop()
        shutil.copytree(data, tmp_path / "copy")
        server.start()
        server.put(f"{stream}.in", b"2", b"3")
        reading = Reading(source(stream, server.url))
        eventually(lambda: len(reading.read()) == 3, "all messages")
        again = Reading(source(stream, server.url), reading.resume)
        server.put(f"{stream}.in", b"4")
        eventually(lambda: again.read() == [b"4"], "the next message")

        server.stop()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        server.start()
        server.put(f"{stream}.in", *(b"new %d" % number for number in range(2, 9)))
        later = source(stream, server.url).open_feed(again.resume)
        words = "was set back since it was read: message 4 is another one"
        with pytest.raises(PeerError, match=words):
            list(iter(later.next_run, None))

    @pytest.mark.parametrize("retained", ["purged", "limited"])
    def test_messages_removed_while_nothing_reads_are_refused_or_skipped_with_their_number(
        self, server: NATSServer, stream: str, eventually: Eventually, retained: str
    ) -> None:
        server.create(stream, max_msgs=3 if retained == "limited" else -1)
        server.put(f"{stream}.in", b"1")
        reading = Reading(source(stream, server.url))
        eventually(reading.read, "a message")
        other = Reading(source(stream, server.url, subject=f"{stream}.in"), reading.resume)
        del reading.feed
        server.put(f"{stream}.in", *(b"%d" % number for number in range(2, 10)))
        if retained == "purged":
            server.do(lambda jetstream: jetstream.purge_stream(stream, seq=7))
        feed = source(stream, server.url).open_feed(reading.resume)
        words = f"5 messages of stream '{stream}' of .*, from 2 on, were removed before they were"
        with pytest.raises(PeerError, match=f"{words} read. To continue without them, configure"):
            list(iter(feed.next_run, None))

        later = Reading(source(stream, server.url, on_data_loss="skip"), reading.resume)
        eventually(lambda: len(later.read()) == 3, "the others")
        assert later.came == [b"7", b"8", b"9"]
        assert later.skipped == 5
        assert Reading(source(stream, server.url), later.resume).read() == []
        # numbers of a subject have gaps of their own
        eventually(lambda: other.read()[-1:] == [b"9"], "those of the subject")
        assert other.skipped == 0

    @pytest.mark.parametrize("on_data_loss", ["stop", "skip"])
    def test_messages_purged_while_the_reader_waits_for_room_are_not_passed_over(
        self,
        server: NATSServer,
        stream: str,
        eventually: Eventually,
        on_data_loss: str,
    ) -> None:
        """It has more than the inbox takes, and the next request of the server."""
        server.create(stream)
        reading = Reading(source(stream, server.url, on_data_loss=on_data_loss))
        server.put(f"{stream}.in", b"1")
        eventually(reading.read, "a message")
        last = EVENTS_MAX + 2 * PULL_MESSAGES
        server.put(f"{stream}.in", *(b"%d" % number for number in range(2, last + 1)))
        server.do(lambda jetstream: jetstream.purge_stream(stream, seq=last - 8))
        server.do(lambda jetstream: jetstream.delete_msg(stream, last - 4))

        if on_data_loss == "stop":
            with pytest.raises(PeerError, match=r"messages of stream .* were removed before"):
                list(iter(reading.read, None))
            return
        eventually(lambda: reading.read()[-1] == b"%d" % last, "the last one")
        kept = [int(payload) for payload in reading.came]
        left = [number for number in range(last - 8, last + 1) if number != last - 4]
        assert kept == [*range(1, last - 8 - reading.skipped), *left]
        assert reading.skipped > 0

    def test_a_stream_that_is_not_there_ends_the_run_with_its_name(
        self, server: NATSServer
    ) -> None:
        feed = source("nowhere", server.url).open_feed(b"")
        words = rf"Source 'messages' cannot read stream 'nowhere' of {server.place}: stream not"
        with pytest.raises(PeerError, match=words):
            list(iter(feed.next_run, None))

    def test_outputs_are_confirmed_in_order_each_with_an_id(
        self, tmp_path: Path, server: NATSServer, stream: str
    ) -> None:
        server.create(stream)
        config = NATSSinkConfig(server.url, f"{stream}.out")
        committer = opened(config, tmp_path)
        committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, *map(str, range(700))))
        committer.close(DRAIN_S)
        found = server.messages(stream)
        assert [message.data for message in found] == [b"%d" % n for n in range(700)]
        assert found[7].headers == {"Nats-Msg-Id": f"s-{commit_of(0).id}-7"}
        assert committer.status().outputs == 700

    def test_an_output_may_name_its_subject(
        self, tmp_path: Path, server: NATSServer, stream: str
    ) -> None:
        server.create(stream)
        encode = wallaroo.encoder(lambda event: (event, f"{stream}.{event}"))
        config = NATSSinkConfig(server.url, encoder=encode, stream=stream)
        committer = opened(config, tmp_path)
        committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, "here"))
        committer.close(DRAIN_S)
        (message,) = server.messages(stream)
        assert (message.subject, message.data) == (f"{stream}.here", b"here")

    @pytest.mark.parametrize(
        ("subject", "expected", "is_first", "words"),
        [
            pytest.param("nowhere", "", False, "no stream takes subject 'nowhere'", id="nowhere"),
            pytest.param("nowhere", "", True, "no stream takes subject 'nowhere'", id="first"),
            pytest.param("", "another", False, "expected stream does not match", id="another"),
        ],
    )
    def test_what_no_stream_takes_ends_the_run_and_is_kept(
        self,
        tmp_path: Path,
        server: NATSServer,
        stream: str,
        eventually: Eventually,
        subject: str,
        expected: str,
        is_first: bool,
        words: str,
    ) -> None:
        """A run with the subject corrected publishes it, whenever the server refused it."""
        server.create(stream)
        right = NATSSinkConfig(server.url, f"{stream}.out")
        wrong = replace(right, subject=subject or right.subject, stream=expected)
        committer = opened(wrong, tmp_path)
        tokens = tokens_of(wrong, tmp_path, 0, "m")
        if is_first:
            error_of(committer, eventually)
        with suppress(PeerError):  # the server may have refused the subject by now
            committer.commit(commit_of(0), tokens)
        with pytest.raises(
            PeerError, match=f"refuses (batch 0|output) for .*{words}.*Nothing is lost"
        ):
            committer.close(DRAIN_S)
        assert server.left(stream) == 0

        corrected = right.committer("s", tmp_path, True)
        corrected.recover(history_to(0), tokens)
        corrected.close(DRAIN_S)
        assert [message.data for message in server.messages(stream)] == [b"m"]

    def test_a_subject_that_no_stream_takes_is_found_before_anything_is_committed(
        self, tmp_path: Path, server: NATSServer
    ) -> None:
        committer = opened(NATSSinkConfig(server.url, "nowhere"), tmp_path)
        with pytest.raises(PeerError, match="no stream takes subject 'nowhere'"):
            committer.check(60)

    def test_a_sink_that_is_refused_leaves_no_connection_open(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        with running_nats(tmp_path / "nats") as own:  # without the clients of other tests
            committer = opened(NATSSinkConfig(own.url, "nowhere"), tmp_path / "s")
            error_of(committer, eventually)
            places = [each.raddr for each in psutil.Process().net_connections("tcp") if each.raddr]
            assert own.port not in {place.port for place in places}

    def test_a_full_stream_gets_no_output_again_once_its_window_has_passed(
        self, tmp_path: Path, server: NATSServer, stream: str, eventually: Eventually
    ) -> None:
        server.create(stream, max_msgs=3, discard="new", duplicate_window=0.1)
        config = NATSSinkConfig(server.url, f"{stream}.out")
        committer = opened(config, tmp_path)
        committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, *"abcd"))
        eventually(lambda: "maximum messages" in committer.status().waiting_for, "it is full")
        time.sleep(0.5)  # until the server has forgotten the ids
        found = [message.data for message in server.messages(stream)]
        server.do(lambda jetstream: jetstream.purge_stream(stream))
        committer.close(DRAIN_S)
        found += [message.data for message in server.messages(stream)]
        assert found == [b"a", b"b", b"c", b"d"]

    @pytest.mark.parametrize(
        "fault", [pytest.param("nats.publish:2", marks=pytest.mark.long), "nats.confirmed:2"]
    )
    def test_a_killed_driver_publishes_each_output_once(
        self,
        tmp_path: Path,
        server: NATSServer,
        stream: str,
        child_of: Callable[..., Forks],
        fault: str,
    ) -> None:
        server.create(stream)
        config = NATSSinkConfig(server.url, f"{stream}.out")
        opened(config, tmp_path).close(0)
        tokens = json.dumps(tokens_of(config, tmp_path, 0, *map(str, range(700))))
        driver = child_of("tests.connectors.nats.child")
        for plan, code in ((fault, -signal.SIGKILL), ("", 0)):
            arguments = (server.url, f"{stream}.out", tmp_path, tokens)
            assert driver.run(*arguments, WALLAROO_FAULT=plan)[0] == code
        assert [int(message.data) for message in server.messages(stream)] == list(range(700))

    def test_a_killed_server_is_waited_for_and_gets_the_output_once(
        self, tmp_path: Path, server: NATSServer, stream: str, eventually: Eventually
    ) -> None:
        server.create(stream)
        config = NATSSinkConfig(server.url, f"{stream}.out")
        committer = opened(config, tmp_path)
        committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, "1"))
        eventually(lambda: not committer.backlog(), "it is confirmed")
        server.kill()
        committer.commit(commit_of(1), tokens_of(config, tmp_path, 1, "2"))
        eventually(lambda: server.place in committer.status().waiting_for, "it says so")
        server.start()
        committer.close(DRAIN_S)
        assert [message.data for message in server.messages(stream)] == [b"1", b"2"]

    def test_messages_are_encrypted_for_a_server_that_is_known(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        own = make_certificate(tmp_path, "server")
        with running_nats(tmp_path / "nats", tls=own) as server:
            server.create("tls")
            config = NATSSinkConfig(server.url, "tls.out", tls=TLS(ca=own.certificate))
            committer = opened(config, tmp_path / "s")
            committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, "1"))
            reading = Reading(source("tls", server.url, tls=TLS(ca=own.certificate)))
            eventually(lambda: reading.read() == [b"1"], "the output")
            committer.close(DRAIN_S)
            with pytest.raises(PeerError, match="certificate verify failed"):
                list(iter(source("tls", server.url).open_feed(b"").next_run, None))

    def test_a_wrong_password_ends_the_run_and_is_not_shown(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        with running_nats(tmp_path / "nats", "me:right") as server:
            url = server.url.replace("right", "secret")
            with pytest.raises(PeerError, match="Authorization Violation") as read:
                list(iter(source("s", url).open_feed(b"").next_run, None))
            put = error_of(opened(NATSSinkConfig(url, "out"), tmp_path / "s"), eventually)
        assert "Authorization Violation. Nothing is lost" in put
        assert "secret" not in f"{read.value}{put}"

    def test_each_server_gets_the_password_that_its_address_encodes(self, tmp_path: Path) -> None:
        """The client decodes nothing by itself."""
        password = "p@s:s/?#%2C,w"
        (dead,) = free_ports(1)
        with running_nats(tmp_path / "nats", f"me:{password}") as server:
            own = f"nats://me:{quote(password, safe='')}@127.0.0.1:{server.port}"
            for url in (own, f"nats://other:secret@127.0.0.1:{dead}, {own}"):
                with pytest.raises(PeerError, match="stream not found"):
                    list(iter(source("s", url).open_feed(b"").next_run, None))


class Unanswered:
    """A client of a server where nothing takes a message, and which is slow to say why."""

    is_closed = False

    def __init__(self) -> None:
        self.may_say_why = asyncio.Event()

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _: str, cb: Any) -> None:
        self.note = cb

    async def publish(self, _: str, __: bytes, reply: str, ___: dict[str, str]) -> None:
        self.answer = asyncio.ensure_future(self.note(SimpleNamespace(subject=reply, data=b"")))

    def jetstream(self, timeout: float) -> Unanswered:
        return self

    async def find_stream_name_by_subject(self, _: str) -> str:
        await self.may_say_why.wait()
        raise NotFoundError


def test_an_output_that_nothing_took_is_not_confirmed_while_the_reason_is_asked_for() -> None:
    async def live() -> None:
        client = Unanswered()
        config: Any = NATSSinkConfig("nats://h", "out")
        publisher = StreamPublisher(client, "s", config)
        await publisher.open()
        part = Slice(commit_of(0), 0, [config.encoder.function("m")])
        publishing = asyncio.ensure_future(publisher.publish(part))
        await asyncio.wait({publishing}, timeout=2 * LOOK_S)
        assert not publishing.done()
        client.may_say_why.set()
        with pytest.raises(DeliveryError, match="no stream takes subject 'out'"):
            await publishing

    asyncio.run(live())


def test_a_server_that_is_not_there_is_waited_for_and_named() -> None:
    (port,) = free_ports(1)
    reading = Reading(source("s", f"nats://me:secret@127.0.0.1:{port}"))
    while not reading.problem:
        reading.read()
    assert reading.problem.startswith(f"NATS at nats://127.0.0.1:{port} (")
    assert "127.0.0.1" in reading.problem
    assert "secret" not in reading.problem


def test_configurations_travel_and_hide_the_password() -> None:
    url = "nats://me:secret@h"
    sink = NATSSinkConfig(url, "out")
    travelled = pickle.loads(pickle.dumps(sink))
    assert (travelled.label, travelled.url) == ("nats out", url)
    assert travelled.encoder.function("x") == b"\0\0x"
    read = pickle.loads(pickle.dumps(source("s", url)))
    assert (read.label, read.url) == ("nats stream s", url)
    assert "secret" not in repr(sink) + repr(read)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: source("", "nats://h"), "stream='' is not a name"),
        (lambda: source("a.b", "nats://h"), "stream='a.b' is not a name"),
        (lambda: source("a", "nats://h", consumer="a b"), "consumer='a b' is not a name"),
        (lambda: source("a", "nats://h", start=0), "start=0 is not a number"),
        (lambda: source("a", "nats://h", on_data_loss="go"), "on_data_loss='go' is unknown"),
        (lambda: NATSSinkConfig("nats://h"), "No subject is named"),
        (lambda: NATSSinkConfig("nats://h", "a.>"), "is not a subject to publish to"),
    ],
)
def test_a_wrong_configuration_is_refused(make: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        make()


@pytest.mark.parametrize("url", ["", "http://h"])
def test_an_address_that_cannot_be_read_is_named(tmp_path: Path, url: str) -> None:
    with pytest.raises(PeerError, match=r"Source 'messages' .*: the address cannot be read: "):
        source("s", url).open_feed(b"")
    with pytest.raises(PeerError, match=r"Sink 's' .*: the address cannot be read: "):
        NATSSinkConfig(url, "out").committer("s", tmp_path, True)


@pytest.mark.parametrize("url", ["nats://me:sec,ret@h", "nats://me:1,ret@h", "nats://me:sec,h"])
def test_a_comma_in_a_password_is_refused_without_a_part_of_it(url: str) -> None:
    with pytest.raises(PeerError, match="a comma in a password is written as %2C") as refused:
        source("s", url).open_feed(b"")
    assert "sec" not in str(refused.value)
    assert "ret" not in str(refused.value)


@pytest.mark.parametrize("subject", ["a b", "a.>", "*", "a..b", "", "a\n"])
def test_a_subject_that_cannot_be_published_to_is_an_error_of_the_encoder(
    tmp_path: Path, subject: str
) -> None:
    config = NATSSinkConfig("nats://h", encoder=wallaroo.encoder(lambda event: event))
    with pytest.raises(ValueError, match="a subject to publish to has no wildcards"):
        tokens_of(config, tmp_path, 0, ("m", subject))


def test_an_encoder_that_is_none_is_left_to_the_build() -> None:
    not_decorated: Any = str
    config = NATSSinkConfig("nats://h", "out", not_decorated)
    assert config.encoder is not_decorated


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("wallaroo.connectors.nats.reader", "wallaroo.connectors.nats.committer"):
        monkeypatch.setitem(sys.modules, module, None)
    words = r"pip install nats-py"
    with pytest.raises(PeerError, match=words):
        source("s", "nats://h").open_feed(b"")
    with pytest.raises(PeerError, match=words):
        NATSSinkConfig("nats://h", "out").committer("s", tmp_path, True)
