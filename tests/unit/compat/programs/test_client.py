"""``wallaroo.experimental``'s source programs against a real ingress."""

from __future__ import annotations

import struct
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingress.conftest import Running, wait_until
from tests.unit.ingress.test_connector import FRAMING, NONE_YET, begin, connector, kill
from wallaroo.compat.programs import connector_wire_messages as cwm
from wallaroo.experimental import (
    AtLeastOnceSourceConnector,
    ConnectorError,
    FramedFileReader,
    MultiSourceConnector,
    ProtocolError,
    SourceConnector,
    Stream,
    ThrottledFileReader,
)

FRAMED = struct.Struct(">I")


def framed_file(path: Path, payloads: list[bytes]) -> str:
    path.write_bytes(b"".join(FRAMED.pack(len(each)) + each for each in payloads))
    return str(path)


def multi(running: Running, cookie: str = "tacos", delay: float = 0) -> MultiSourceConnector:
    host, port = running.feeders.addresses["In"]
    return MultiSourceConnector("0.0.1", cookie, "test", "1", host, str(port), delay=delay)


class Writer(AtLeastOnceSourceConnector):
    """Writes when asked to; notes what it is called with."""

    def __init__(self, running: Running):
        host, port = running.feeders.addresses["In"]
        super().__init__("0.0.1", "tacos", "test", "2", host, port)
        self.calls: list[tuple[str, Stream]] = []

    def stream_opened(self, stream: Stream) -> None:
        self.calls.append(("opened", stream))

    def stream_closed(self, stream: Stream) -> None:
        self.calls.append(("closed", stream))

    def stream_acked(self, stream: Stream) -> None:
        self.calls.append(("acked", stream))


def test_files_are_sent_once_although_the_ingress_is_killed(
    running: Running, tmp_path: Path
) -> None:
    running.start(connector(), is_durable=True)
    wanted = {name: [b"%s %d" % (name.encode(), each) for each in range(150)] for name in "ab"}
    client = multi(running, delay=0.001)
    client.add_source(FramedFileReader(framed_file(tmp_path / "a", wanted["a"])))
    client.connect()
    client.add_source(FramedFileReader(framed_file(tmp_path / "b", wanted["b"])))
    source = running.source(framing=FRAMING)
    for stored in (60, 180):
        wait_until(lambda: source.reader.head().position.events >= stored)  # noqa: B023  # used at once
        kill(running)

    wait_until(lambda: running.feeders.poll() or client.stopped.is_set(), 30)

    assert client.error is None
    got = source.wait_for(300)
    assert Counter(got) == Counter(wanted["a"] + wanted["b"])
    assert [each for each in got if each[:1] == b"a"] == wanted["a"]


def test_a_file_that_was_sent_is_not_sent_again(running: Running, tmp_path: Path) -> None:
    running.start(connector())
    path = framed_file(tmp_path / "a", [b"1", b"2"])
    for _ in range(2):
        client = multi(running)
        client.connect()
        client.add_source(FramedFileReader(path))
        assert client.join(400) is None
        assert client.stopped.is_set()
    assert running.source(framing=FRAMING).wait_for(2) == [b"1", b"2"]


def test_lines_are_sent_no_faster_than_allowed(running: Running, tmp_path: Path) -> None:
    running.start(connector())
    (tmp_path / "lines").write_bytes(b"one\n" * 250 + b"two\n" * 250)
    client = multi(running)
    client.connect()
    began = time.monotonic()
    client.add_source(
        ThrottledFileReader(str(tmp_path / "lines"), limit_rate=1500, is_text_lines=True)
    )
    assert client.join(400) is None
    assert client.stopped.is_set()
    assert time.monotonic() - began > 0.2
    assert running.source(framing=FRAMING).wait_for(500) == [b"one\n"] * 250 + [b"two\n"] * 250


def test_messages_are_written_and_acknowledged(running: Running) -> None:
    running.start(connector())
    client = Writer(running)
    client.connect()
    with pytest.raises(ProtocolError, match="not in an open state"):
        client.write(cwm.Message(1, 1, 0, None, b"x"))
    client.notify(1, b"one", 0)
    wait_until(lambda: client.calls)
    assert client.calls == [("opened", Stream(1, b"one", NONE_YET, True))]
    for number in range(1, 101):  # more than there are credits
        client.write(cwm.Message(1, number, 0, None, b"%d" % number))
    wait_until(lambda: client.calls[-1] == ("acked", Stream(1, b"one", 100, True)))
    client.end_of_stream(1)
    client.shutdown()
    assert client.join(400) is None
    assert len(running.source(framing=FRAMING).wait_for(100)) == 100


def test_a_stream_in_use_is_opened_once_it_is_free(running: Running) -> None:
    running.start(connector())
    other = begin(running)
    other.open(1, b"one")
    client = Writer(running)
    client.connect()
    client.notify(1, b"one", 0)
    time.sleep(0.1)
    assert client.calls == []
    other.close()
    wait_until(lambda: client.calls)
    assert client.calls[0][0] == "opened"
    client.shutdown()


def test_many_sources_are_announced_on_credit(running: Running, tmp_path: Path) -> None:
    running.start(connector(max_credits=3, refill_credits=1))
    client = multi(running)
    client.connect()
    for number in range(20):
        path = framed_file(tmp_path / str(number), [b"%d" % number] * 3)
        client.add_source(FramedFileReader(path))
    assert client.join(400) is None
    assert client.stopped.is_set()
    assert len(running.source(framing=FRAMING).wait_for(60)) == 60


def test_a_wrong_cookie_is_an_error_with_the_reason(running: Running) -> None:
    running.start(connector())
    client = multi(running, cookie="wrong")
    with pytest.raises(ConnectorError, match="cookie"):
        client.connect()
    assert isinstance(client.join(), ConnectorError)


def test_a_callback_that_raises_stops_the_connector_with_its_error(running: Running) -> None:
    class Failing(Writer):
        def stream_opened(self, stream: Stream) -> None:
            raise KeyError("mine")

    running.start(connector())
    client = Failing(running)
    client.connect()
    client.notify(1, b"one")
    assert isinstance(client.join(400), KeyError)


APPLICATION = """
    import wallaroo
    from wallaroo.experimental import (SinkConnectorConfig, SourceConnectorConfig,
        stream_message_decoder, stream_message_encoder)

    @stream_message_encoder
    def encode(number):
        return b"%d" % number

    @stream_message_decoder
    def decode(payload):
        return int(payload)

    def application_setup(args):
        source = SourceConnectorConfig("In", encode, decode, 0, "tacos", 10, 3)
        sink = SinkConnectorConfig("out", encode, decode, 7200, "tacos")
        numbers = wallaroo.source("numbers", source)
        return wallaroo.build_application("numbers", numbers.to_sink(sink))
"""


def test_a_simple_program_finds_its_configuration_in_the_application(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numbers_app.py").write_text(textwrap.dedent(APPLICATION))
    monkeypatch.syspath_prepend(tmp_path)
    running.start(connector(), is_durable=True)
    host, port = running.feeders.addresses["In"]
    options: dict[str, Any] = {"--In-host": host, "--In-port": port}
    given = [str(each) for pair in options.items() for each in pair]
    program = SourceConnector(
        ["x", "--application-module", "numbers_app", "--connector", "In", *given]
    )
    program.connect(program.params.host, program.params.port)
    for number in range(50):
        program.write(number, event_time=number)
    kill(running)
    program.write(50)
    wait_until(lambda: running.feeders.poll() or True)
    program.close()
    sys.modules.pop("numbers_app", None)
    assert running.source(framing=FRAMING).wait_for(51) == [b"%d" % each for each in range(51)]
