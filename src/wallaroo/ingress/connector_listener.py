"""One connector source inside the ingress: its port, its clients, its spool.

``connector_protocol.worker`` decides which messages are sent; this module handles the sockets and
the disk.

The invariants:

* Only ``publish`` sends to a client, after the spool was published.  So an ACK, and the
  point of reference that a NOTIFY is answered with, name messages that are on disk: a client may
  forget them.  That is earlier than Wallaroo's ACK after a checkpoint but as safe, because a batch
  that is processed again reads the spool, never the client.
* The id of a stream's last message is part of the chunk that holds the message (``resume``): after
  any crash both are there or neither, so exactly the repeated messages of a client are dropped.
* A message without a payload is not an event.  Its id is not stored: if it is sent again, it has no
  effect.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from wallaroo.ingress.acks import StreamNumbers as StoredStreams
from wallaroo.ingress.config import IngressSource
from wallaroo.ingress.connection import ReadBuffer
from wallaroo.ingress.listener import Listener, ListenerContext
from wallaroo.network.connection_budget import Visitor
from wallaroo.network.tls_sockets import Address, TlsSocket, keep_alive
from wallaroo.protocols.connector import worker
from wallaroo.protocols.framing import framer
from wallaroo.sources.connector_notes import note_of, stream_in, stream_key, stream_of
from wallaroo.sources.listening import ConnectorOptions

READ_BYTES = 64 * 1024
UNSENT_BYTES_MAX = 1024 * 1024  # in answers that a client has not read


@dataclass(slots=True, eq=False)
class _Client:
    """A source program's connection."""

    socket: socket.socket
    peer: str
    number: int
    until: float  # monotonic; HELLO has to arrive before
    session: worker.SourceSession
    visitor: Visitor = field(init=False)
    stored: dict[int, int] = field(default_factory=dict)  # stream -> id to be acknowledged
    unsent: bytearray = field(default_factory=bytearray)


class ConnectorListener(Listener):
    """The reader of one source's programs, into its spool."""

    def __init__(self, source: IngressSource, options: ConnectorOptions, context: ListenerContext):
        super().__init__(source, context, partial(StoredStreams, stream_in=stream_in))
        self._options = options
        self._handshake_s = context.handshake_s
        self._streams = worker.Streams()
        for key, last in self._store.streams.counts.items():
            stream, name = stream_of(key)
            self._streams.by_id[stream] = worker.Stream(name, last)
        self._frame = framer(source.framing)
        self._clients: dict[int, _Client] = {}

    def listen(self) -> tuple[Address, Address | None]:
        return self._ports.open(self.source.port, self._open), None

    def _connected(self) -> int:
        return len(self._clients)

    def _is_answering(self) -> bool:
        return bool(self._clients)

    def _answer_all(self) -> None:
        for client in list(self._clients.values()):
            self._answer(client)

    def _pause_all(self) -> None:
        """Grant no credits either."""
        for client in self._clients.values():
            client.session.pause()
            self._selector.unregister(client.socket)

    def _resume_all(self) -> None:
        for client in self._clients.values():
            client.session.resume()
            self._watch(client)

    def _look_after_clients(self, now: float) -> None:
        for client in list(self._clients.values()):
            if client.session.state is worker.State.CONNECTED and client.until < now:
                self._reject(client, f"it sent no HELLO for {self._handshake_s:g} s")
            else:
                client.session.beat()

    def close(self) -> None:
        """Publish, acknowledge and close everything; clients connect again to the next run."""
        self._ports.close()
        try:
            self.publish()
        finally:
            for client in list(self._clients.values()):
                self._close(client)
            self._store.close()

    # -- clients ----------------------------------------------------------------------------------

    def _open(self, accepted: socket.socket | TlsSocket, peer: str) -> None:
        sock = cast(socket.socket, accepted)  # the protocol has no TLS
        number = self._store.opened()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        options = self._options
        session = worker.SourceSession(
            self._streams, options.cookie.encode(), options.max_credits, options.refill_credits
        )
        until = time.monotonic() + self._handshake_s
        client = _Client(sock, peer, number, until, session)
        client.visitor = self._enter(partial(self._close, client))
        self._clients[number] = client
        self.is_changed = True
        if self._store.is_paused:
            session.pause()
        else:
            self._watch(client)

    def _watch(self, client: _Client) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
        self._selector.register(client.socket, wanted, partial(self._serve, client))

    def _serve(self, client: _Client, buffer: ReadBuffer) -> int:
        if client.number not in self._clients:  # closed earlier in this pass
            return 0
        if client.unsent:
            self._send(client)
        try:
            count = client.socket.recv_into(buffer.view[:READ_BYTES])
        except BlockingIOError:
            return 0
        except OSError as error:
            self._log(f"{client.peer} disconnected: {error.strerror}")
            self._close(client)
            return 0
        if not count:
            self._close(client)
            return 0
        self._store_all(client, client.session.feed(bytes(buffer.view[:count])))
        if client.session.state is not worker.State.CONNECTED:
            client.visitor.prove()
        self.is_changed = True
        return count

    def _store_all(self, client: _Client, events: Iterable[worker.Event]) -> None:
        """Append a chunk per stream."""
        messages_of: dict[int, list[worker.Taken]] = {}
        for event in events:
            if isinstance(event, worker.Ended):
                client.stored[event.stream] = event.last
            else:
                messages_of.setdefault(event.stream, []).append(event)
                client.stored[event.stream] = event.id
        for stream, messages in messages_of.items():
            self._append(client, stream, messages)

    def _append(self, client: _Client, stream: int, messages: list[worker.Taken]) -> None:
        key = stream_key(stream, self._streams.by_id[stream].name)
        last = messages[-1].id
        events = [message for message in messages if message.payload]
        if events:
            frames = b"".join([self._frame(message.payload) for message in events])
            note = note_of(key, last, [message.event_time for message in events])
            self._store.append_with(frames, len(events), client.number, note)
        self._store.streams.counts[key] = last

    def _answer(self, client: _Client) -> None:
        session = client.session
        if client.stored:
            self._store.answers.after_commit(partial(self._confirm, client, client.stored))
            client.stored = {}
        session.flush()
        client.unsent += session.data_to_send()
        if client.unsent:
            self._send(client)
        if client.number not in self._clients:
            return
        if session.state is worker.State.FAILED:
            self._reject(client, session.failure)
        elif len(client.unsent) > UNSENT_BYTES_MAX:
            self._reject(client, "it does not read its acknowledgements")

    def _confirm(self, client: _Client, stored: dict[int, int]) -> None:
        for stream, last in stored.items():
            client.session.acknowledge(stream, last)

    def _send(self, client: _Client) -> None:
        had_all = not client.unsent
        try:
            sent = client.socket.send(client.unsent)
            del client.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError as error:
            self._log(f"{client.peer} disconnected: {error.strerror}")
            self._close(client)
            return
        if client.socket in self._selector.get_map() and not had_all:
            self._selector.unregister(client.socket)
            self._watch(client)

    def _reject(self, client: _Client, what: str) -> None:
        self._store.rejected += 1
        program = f" ({client.session.program})" if client.session.program else ""
        self._log(f"closed {client.peer}{program}: {what}")
        self._close(client)

    def _close(self, client: _Client) -> None:
        if self._clients.pop(client.number, None) is None:
            return
        client.visitor.leave()
        self._store.closed(client.number)
        client.session.close()
        if client.socket in self._selector.get_map():
            self._selector.unregister(client.socket)
        with contextlib.suppress(OSError):
            client.socket.shutdown(socket.SHUT_WR)
            # if bytes were left unread, a reset would overtake the ERROR
            client.socket.recv(READ_BYTES)
        client.socket.close()
        self.is_changed = True
