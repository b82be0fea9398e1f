"""Connector programs that find their configuration in the application, and their codecs.

Where it runs: source and sink programs (``SourceConnector`` and ``SinkConnector``); the decorators
also in driver and workers, when the application's module is imported.  The payload is inside of the
protocol's frames, so a decoder gets it and an encoder returns it without any header.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from wallaroo.api.decorators import decoder, encoder
from wallaroo.compat.programs import connector_wire_messages as cwm
from wallaroo.compat.programs.client import AtLeastOnceSourceConnector, Stream
from wallaroo.compat.programs.faults import ConnectorError
from wallaroo.compat.programs.sink_server import SinkServer
from wallaroo.compat.sink.config import SinkConnectorConfig
from wallaroo.compat.source import SourceConnectorConfig
from wallaroo.protocols.connector.frames import NO_POINT
from wallaroo.steps.kinds import Decoder, Encoder

VERSION = "0.0.1"
CONNECT_RETRY_S = 1.0
UNACKNOWLEDGED_MAX = 10_000  # messages; then `write` waits


def parse_connector_args(
    args: Sequence[str], required_params: Sequence[str] = (), optional_params: Sequence[str] = ()
) -> argparse.Namespace:
    """Parse ``--application-module``, ``--connector NAME`` and ``--NAME-PARAM`` for each parameter.

    >>> args = ["--application-module", "app", "--connector", "feed", "--feed-host", "localhost"]
    >>> parse_connector_args(args, ["host"]).host
    'localhost'
    """
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--connector", dest="connector_name")
    prefix = first.parse_known_args(list(args))[0].connector_name or "CONNECTOR_NAME"
    parser = argparse.ArgumentParser()
    parser.add_argument("--application-module", dest="application", required=True)
    parser.add_argument("--connector", dest="connector_name", required=True)
    for key in required_params:
        parser.add_argument(f"--{prefix}-{key}", dest=key, required=True)
    for key in optional_params:
        parser.add_argument(f"--{prefix}-{key}", dest=key)
    return parser.parse_known_args(list(args))[0]


def _configs(application: str, args: Sequence[str]) -> Iterator[Any]:
    """Yield the configurations of an application's sources and sinks."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    plan = importlib.import_module(application).application_setup(list(args)).plan
    yield from (source.config for source in plan.sources)
    yield from (sink.config for sink in plan.sinks)


def _find(kind: type[Any], what: str, params: argparse.Namespace, args: Sequence[str]) -> Any:
    for config in _configs(params.application, args):
        if isinstance(config, kind) and config.name == params.connector_name:
            return config
    raise RuntimeError(f"Unable to find a {what} connector with the name {params.connector_name}")


class SourceConnector:
    """A sender of single messages, which keeps them until they are safe."""

    def __init__(
        self,
        args: Sequence[str] | None = None,
        required_params: Sequence[str] = ("host", "port"),
        optional_params: Sequence[str] = (),
    ):
        given = sys.argv if args is None else args
        self.params = parse_connector_args(given, required_params, optional_params)
        self._config: SourceConnectorConfig[Any] = _find(
            SourceConnectorConfig, "source", self.params, given
        )
        self._sender: _Sender | None = None
        self.count = 0

    def connect(self, host: str | None = None, port: int | str | None = None) -> None:
        """Connect; wait for an application that is not listening yet."""
        config = self._config
        address = (host or config.host, port or config.port)
        while True:
            sender = _Sender(config, *address)
            try:
                sender.connect()
                break
            except ConnectionRefusedError:
                time.sleep(CONNECT_RETRY_S)
        self._sender = sender
        atexit.register(self.close)

    def write(
        self, message: Any, event_time: int | datetime = 0, key: bytes | str | None = None
    ) -> None:
        """Encode and send a message; ``event_time`` in milliseconds of unix time."""
        if self._sender is None:
            raise RuntimeError("Please call connect before writing")
        encoder = self._config.encoder
        payload = message if encoder is None else encoder.encode(message)
        if payload is None:
            return
        raw = payload.encode() if isinstance(payload, str) else payload
        raw_key = key.encode() if isinstance(key, str) else key
        when = (
            int(event_time.timestamp() * 1000) if isinstance(event_time, datetime) else event_time
        )
        self._sender.put(raw, when, raw_key)
        self.count += 1

    def close(self) -> None:
        """Wait until everything is safe, and disconnect."""
        sender = self._sender
        self._sender = None
        if sender is not None:
            atexit.unregister(self.close)
            sender.finish()


class _Sender(AtLeastOnceSourceConnector):
    """One stream of messages, kept until acknowledged."""

    def __init__(self, config: SourceConnectorConfig[Any], host: str, port: int | str):
        super().__init__(VERSION, config.cookie, config.name, str(os.getpid()), host, port)
        self._stream = int.from_bytes(os.urandom(8)) >> 1  # a program has no position of its own
        self._name = f"{config.name}-{self._stream:x}".encode()
        self._kept: deque[cwm.Message] = deque()
        self._at = 0  # index of the next one to send
        self._is_open_now = False
        self._is_ended = False
        self._last = 0
        self._room = threading.Condition()
        self.notify(self._stream, self._name)

    def put(self, payload: bytes, event_time: int, key: bytes | None) -> None:
        with self._room:
            self._room.wait_for(
                lambda: len(self._kept) < UNACKNOWLEDGED_MAX or self.stopped.is_set(), None
            )
            if self.stopped.is_set():
                raise ConnectorError(f"the connection has ended: {self.error}")
            self._last += 1
            self._kept.append(cwm.Message(self._stream, self._last, event_time, key, payload))

    def finish(self) -> None:
        with self._room:
            self._is_ended = True
        self.join()

    def __next__(self) -> cwm.Message | None:
        with self._room:
            if self._is_ended and not self._kept:
                raise StopIteration
            if not self._is_open_now or self._at == len(self._kept):
                return None
            self._at += 1
            return self._kept[self._at - 1]

    def handle_error(self) -> None:
        super().handle_error()
        self.stopped.set()
        with self._room:
            self._room.notify_all()

    def stream_opened(self, stream: Stream) -> None:
        with self._room:
            self._is_open_now = True
            self._drop(stream.point_of_ref)
            self._at = 0

    def stream_closed(self, stream: Stream) -> None:
        with self._room:
            self._is_open_now = False

    def stream_acked(self, stream: Stream) -> None:
        with self._room:
            self._drop(stream.point_of_ref)

    def _drop(self, point: int) -> None:
        while point != NO_POINT and self._kept and self._kept[0].message_id <= point:
            self._kept.popleft()
            self._at -= 1
        self._room.notify_all()


class SinkConnector:
    """A receiver of an application's output to a connector sink, decoded.

    It votes for every transaction and returns a message once its transaction is committed.  Its
    data is in memory: a program that has to survive its own crash exactly-once keeps a log of its
    own (see docs/connectors/programs.md).
    """

    def __init__(
        self,
        args: Sequence[str] | None = None,
        required_params: Sequence[str] = (),
        optional_params: Sequence[str] = (),
    ):
        given = sys.argv if args is None else args
        self.params = parse_connector_args(given, required_params, optional_params)
        self._config: SinkConnectorConfig = _find(SinkConnectorConfig, "sink", self.params, given)
        self._server: SinkServer | None = None

    def listen(
        self, host: str | None = None, port: int | str | None = None, backlog: int = 0
    ) -> None:
        """Listen for the application."""
        config = self._config
        self._server = SinkServer(host or config.host, int(port or config.port), config.cookie)

    def read(self, timeout: float | None = None) -> Any:
        """Return the next message; None if none comes within ``timeout`` seconds."""
        if self._server is None:
            raise RuntimeError("Please call listen before reading")
        payload = self._server.read(timeout)
        if payload is None or self._config.decoder is None:
            return payload
        return self._config.decoder.decode(payload)


T = TypeVar("T")


def stream_message_decoder(function: Callable[[bytes], T | None], /) -> Decoder[T]:
    """Return a decoder of payloads by a function; ``None`` drops the message."""
    return decoder(function)


def stream_message_encoder(function: Callable[[T], bytes | str | None], /) -> Encoder[T]:
    """Return an encoder whose function returns a message's payload; ``None`` writes nothing."""
    return encoder(function)


def octet_message_decoder(header_length: Any = 4, length_fmt: str = ">I") -> Any:
    """Return a decoder as ``wallaroo.decoder`` does, with or without arguments."""
    return (
        decoder(header_length, length_fmt)
        if not callable(header_length)
        else decoder(header_length)
    )


def octet_message_encoder(function: Callable[[T], bytes | str | None], /) -> Encoder[T]:
    """Return an encoder as ``wallaroo.encoder`` does."""
    return encoder(function)
