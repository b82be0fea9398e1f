"""Driver side of ingress hosts: admission and exchange of positions.

Where it runs: driver; a thread for each connection.
"""

from __future__ import annotations

import contextlib
import logging
import re
import select
import socket
import threading
import time
from dataclasses import replace

import msgspec

from wallaroo.ingress.joining import messages
from wallaroo.network.proved_connections import TaskListener
from wallaroo.network.replica_link import Fields, read_message, write_message
from wallaroo.sources.joined.hosts import Farewell, IngressHost, IngressHosts, RangePlace

GIVE_UP_S = 30.0  # how long the commit that a lost host leaves with may take
LOOK_S = 0.05
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ID = re.compile(r"[0-9a-f]{16}")
_GONE = (OSError, EOFError, ValueError, KeyError, TypeError, msgspec.MsgspecError)
_log = logging.getLogger("wallaroo.run")


class _RefusedError(Exception):
    """A host that is not admitted.

    Its arguments are the answer and words.
    """


class _Session:
    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._rings, self._bell = socket.socketpair()
        self._rings.setblocking(False)
        self._bell.setblocking(False)
        self._poll = select.poll()  # not select, which takes no descriptor above 1,023
        for each in (connection, self._rings):
            self._poll.register(each, select.POLLIN)

    def wake(self) -> None:
        """Let `wait` return; from any thread."""
        with contextlib.suppress(OSError):
            self._bell.send(b"\0")

    def wait(self) -> bool:
        """Wait for a message or a wake-up; return whether there is a message."""
        if messages.has_more(self.connection):
            return True
        ready = {descriptor for descriptor, _ in self._poll.poll(messages.BEAT_S * 1000)}
        if self._rings.fileno() in ready:
            self._rings.recv(4096)
        return self.connection.fileno() in ready

    def close(self) -> None:
        for each in (self.connection, self._rings, self._bell):
            each.close()


class HostListener:
    def __init__(self, listener: TaskListener, hosts: IngressHosts, terms: messages.Terms):
        self._listener = listener
        self._hosts = hosts
        self._terms = terms
        self._is_closing = False
        self._admitting = threading.Lock()
        self._starting: dict[_Session, str] = {}  # keys of hosts that are not yet ready

    def begin(self) -> None:
        """Admit hosts from now on."""
        self._listener.begin(
            lambda connection: threading.Thread(
                target=self._serve, args=(connection,), name="wallaroo-ingress", daemon=True
            ).start()
        )

    def close(self) -> None:
        """Admit no more, and end all connections; hosts keep received input."""
        self._is_closing = True
        self._listener.close()
        for host in self._hosts.all():
            host.wake()

    def _serve(self, connection: socket.socket) -> None:
        session = _Session(connection)
        try:
            connection.settimeout(messages.SILENT_S)
            hello, _ = read_message(connection)
            try:
                if hello["op"] == messages.LOST:
                    self._give_up(str(hello["name"]))
                    write_message(connection, {"op": messages.LEFT})
                elif hello["op"] == messages.JOIN:
                    self._join(session, hello)
            except _RefusedError as error:
                answer, words = error.args
                write_message(connection, {"op": answer, "words": words})
        except _GONE:
            pass  # it connects again, or was not an ingress
        finally:
            session.close()

    # -- joining ----------------------------------------------------------------------------------

    def _join(self, session: _Session, hello: Fields) -> None:
        is_leaving = bool(hello["is_leaving"])
        name = str(hello["name"])
        with self._admitting:
            key, committed = self._admitted(name, str(hello["id"]), is_leaving)
            self._starting[session] = key
        try:
            place = self._started(session, key, committed)
            if place is None:
                return
            host = self._hosts.connected(key, session, place)
        finally:
            del self._starting[session]
        host.farewell = Farewell.LEAVING if is_leaving else Farewell.NONE
        host.wake = session.wake
        cause = "it ended the connection"
        try:
            self._exchange(session, host)
        except TimeoutError:
            cause = f"no sign of life for {messages.SILENT_S:.0f} s"
        except OSError as error:
            cause = error.strerror or str(error)
        except EOFError:
            pass
        finally:
            self._hosts.disconnected(host, session, cause)
            if not self._is_closing and not host.has_left(self._hosts.sources):
                _log.warning("ingress '%s' is disconnected: %s; the run continues", name, cause)

    def _started(self, session: _Session, key: str, committed: Fields) -> RangePlace | None:
        """Let a host begin to listen; return its range server, or None if it cannot join."""
        connection = session.connection
        welcome = {"op": messages.WELCOME, "terms": self._terms.to_json(), "committed": committed}
        self._hosts.welcome(key)
        try:
            write_message(connection, welcome)
            connection.settimeout(messages.START_S)
            answer, _ = read_message(connection)
            connection.settimeout(messages.SILENT_S)
        except _GONE:
            self._hosts.vanished(key)
            raise
        if answer["op"] != messages.READY:
            self._hosts.withdraw(key)
            name = key.rpartition("/")[0]
            _log.warning("ingress '%s' cannot join: %s", name, answer.get("words", ""))
            return None
        address = str(answer["ranges"][0]), int(answer["ranges"][1])
        return RangePlace(address, str(answer["certificate"]))

    def _admitted(self, name: str, id_: str, is_leaving: bool) -> tuple[str, Fields]:
        """Return a host's key, and its committed positions.  Raises _RefusedError."""
        if not NAME.fullmatch(name) or not _ID.fullmatch(id_):
            raise _RefusedError(messages.REFUSED, f"{name!r} is not a name of an ingress")
        left = self._hosts.left_of(id_)
        if left and not is_leaving:
            raise _RefusedError(
                messages.REFUSED,
                f"ingress '{name}' has left this run for good. Give an empty folder to join again.",
            )
        if len(left) == len(self._hosts.sources):
            raise _RefusedError(messages.LEFT, "")
        other = self._hosts.named(name)
        key = f"{name}/{id_}"
        if other is not None and other.key != key and not other.has_left(self._hosts.sources):
            raise _RefusedError(
                messages.REFUSED,
                f"ingress '{name}' has joined this run with another folder, whose input may not be "
                f"processed yet. If this is another ingress, give it another --name (the default "
                f"is the host's); else give that folder. Only if its disk is lost: `wallaroo "
                f"ingress --lost {name}`, which gives up what it holds.",
            )
        # it listens once it is welcome: the name is its own from then on
        starting = (each for each in list(self._starting.values()) if each != key)
        if any(each.rpartition("/")[0] == name for each in starting):
            raise _RefusedError(messages.LATER, f"another ingress '{name}' is just joining")
        if other is not None and other.session is not None:
            raise _RefusedError(messages.LATER, f"ingress '{name}' is connected already")
        is_known = other is not None and other.key == key
        return key, messages.committed_json(
            other.committed
        ) if is_known and other is not None else {}

    def _exchange(self, session: _Session, host: IngressHost) -> None:
        """Exchange positions until the connection ends.  Raises OSError or EOFError."""
        received_at = sent_at = time.monotonic()
        sent: Fields = {}
        was_there = False
        while host.session is session and not self._is_closing:
            if session.wait():
                self._take(host, *read_message(session.connection))
                received_at = time.monotonic()
            if host.is_there and not was_there:
                was_there = True
                verb = "leaves" if host.farewell is Farewell.LEAVING else "has joined"
                _log.warning("ingress '%s' %s", host.name, verb)
            now = time.monotonic()
            if now - received_at > messages.SILENT_S:
                raise TimeoutError
            has_left = host.has_left(self._hosts.sources)
            state = {
                "op": messages.COMMITTED,
                "sources": messages.committed_json(host.committed),
                "left": has_left,
            }
            if state != sent or now - sent_at >= messages.BEAT_S:
                write_message(session.connection, state)
                sent = state
                sent_at = now
            if has_left:
                _log.warning("ingress '%s' has left: all it received is processed", host.name)
                return

    def _take(self, host: IngressHost, message: Fields, payload: bytes) -> None:
        if message["op"] != messages.HEAD or message["source"] not in host.parts:
            return
        part = host.parts[message["source"]]
        head, found, boundaries = messages.head_of(message, payload)
        if head.as_of_ns:  # by this host's clock
            head = replace(head, as_of_ns=time.time_ns())
        if found is not None:
            part.connections.add(found)
        is_news = not part.is_known or part.head() != head
        part.report(head, boundaries)
        if is_news:
            self._hosts.wake()

    # -- giving up --------------------------------------------------------------------------------

    def _give_up(self, name: str) -> None:
        """Let a lost host leave.  Raises _RefusedError."""
        host = self._hosts.named(name)
        if host is None:
            known = ", ".join(f"'{each.name}'" for each in self._hosts.all()) or "none"
            raise _RefusedError(
                messages.REFUSED, f"no ingress '{name}' has joined this run: {known}"
            )
        if host.session is not None:
            words = f"ingress '{name}' is connected. Stop it, then `wallaroo ingress --leave`."
            raise _RefusedError(messages.REFUSED, words)
        host.farewell = Farewell.LOST
        self._hosts.wake()
        until = time.monotonic() + GIVE_UP_S
        while not host.has_left(self._hosts.sources):
            if time.monotonic() > until:
                raise _RefusedError(messages.LATER, "the run does not commit at the moment")
            time.sleep(LOOK_S)
        _log.warning("ingress '%s' is given up: its unread input is lost", name)
