"""The keeper of a copy: `wallaroo replica`.

Where it runs: the replica, a process of its own on the second host; a thread for each connection.

The invariants:

* *Write, check, answer.* Acknowledged data is on disk, and the sending run still owned the copy
  after the write. The claim is in the copy (`state.log.owners`), so a run that starts on the copy
  ends this at once, even before this process notices.
* Requests of one run are executed concurrently; those of an earlier run have ended, or will be
  rejected, when another one begins.
* The lock `KEEPING` is held until no request is in progress.  A run that takes the copy over
  waits for it, so nothing is written here after it began.
* Files reported as present are on disk. A file whose sync failed is not reported: a second sync
  would not reveal what the first one lost.
* A copy counts once it has `format.json`, which comes last.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec

from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.durable.ownership import Ownership, newest_owner
from wallaroo.durable.whole_file import PRIVATE_FILE, sync_folder, write_all
from wallaroo.errors import CheckpointError, InUseError, PeerError, TakenOverError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.key_files import KeyFile, kept_key
from wallaroo.network.proved_connections import TaskListener
from wallaroo.network.replica import REPLICA_KEY, WRITER
from wallaroo.network.replica_link import (
    COMPLETE,
    LATER,
    OVER,
    PART,
    REFUSED,
    Fields,
    crc_of,
    read_message,
    write_message,
)
from wallaroo.network.tls import Pem
from wallaroo.state.log.layout import FORMAT, KEEPING, LOCK, OWNERS, read_identity
from wallaroo.state.log.lease import LEASE
from wallaroo.state.log.line import claim_files, lines_in
from wallaroo.state.log.owners import Claim, adopt_claim, owner_words

COPY = "copy for "  # how the claim of a copy begins
REPORT_S = 60.0  # between two reports of one subject
LOOK_S = 0.25  # between two checks of the claim


class _RefusedError(Exception):
    """A request that is refused.

    Its arguments are the kind and words.
    """


@dataclass(slots=True, eq=False)
class _Session:
    """A connection of a run."""

    connection: socket.socket
    peer: str
    claim: Claim | None = None  # that of its run
    busy: threading.Lock = field(default_factory=threading.Lock)


class Keeper:
    """The copy in a folder, and the connections of its run."""

    def __init__(self, root: Path, report: Callable[[str], None]):
        """Take the folder, which is empty or holds a copy.

        Raises CheckpointError if it is anything else, InUseError if a process uses it.
        """
        self._root = root
        self._report = report
        make_private(root, is_durable=True)
        try:
            self._locks = [lock_file(root / LOCK, f"the replica, {owner_words()}")]
            self._locks.append(lock_file(root / KEEPING, owner_words()))
        except LockedError as error:
            raise InUseError(
                f"{root} is in use by {error.holder or 'another process'}. Stop that, or give this "
                f"replica a folder of its own."
            ) from error
        self._claim = self._own_claim()
        self._sessions: set[_Session] = set()
        self._changing = threading.Lock()
        self._report_at: dict[str, float] = {}  # monotonic, by subject
        # a sync failed, so these have to be sent again as a whole
        self._doubtful: set[Path] = set()
        self._over = ""  # reason why this is no longer a copy

    def _own_claim(self) -> Claim | None:
        """Return the claim of the run that the folder is a copy of; None for an empty one."""
        root = self._root
        others = {entry.name for entry in root.iterdir()} - {LOCK, KEEPING, REPLICA_KEY, OWNERS}
        is_copy = (root / REPLICA_KEY).exists()
        claims = claim_files(os.listdir(root / OWNERS)) if (root / OWNERS).exists() else []
        path = root / OWNERS / claims[0].name if claims else None
        if ((others or claims) and not is_copy) or (path and not path.read_text().startswith(COPY)):
            raise CheckpointError(
                f"{root} is not a copy that a replica keeps, or a run has continued from it. Give "
                f"the replica an empty folder, which is filled as soon as a run connects."
            )
        if path is None:
            return None
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC), "rb", buffering=0)
        ownership = Ownership(str(path), os.fstat(file.fileno()).st_ino)
        return Claim(claims[0].epoch, ownership, file, is_durable=True)

    def key(self, certificate: str) -> KeyFile:
        """Return the key of the folder, created if necessary, with this certificate (PEM)."""
        return kept_key(self._root / REPLICA_KEY, WRITER, certificate)

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of a proved connection until it is closed."""
        peer = ":".join(map(str, connection.getpeername()[:2]))
        session = _Session(connection, peer)
        with self._changing:
            self._sessions.add(session)
        try:
            while True:
                request, payload = read_message(connection)
                with session.busy:
                    answer = self._answer(session, request, payload)
                fault_point("replica.answer")
                write_message(connection, answer)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            pass  # it connects again, or was not a run
        finally:
            with self._changing:
                self._sessions.discard(session)
            connection.close()

    def refused(self, host: str) -> None:
        """Report a connection that has another key; a run connects repeatedly."""
        self._report_seldom(
            "key",
            f"refused a connection from {host}, which has another key: --replica-key of its run "
            f"has to be a copy of {self._root / REPLICA_KEY}",
        )

    def _report_seldom(self, subject: str, words: str) -> None:
        """Report what a run repeats: once in a while for each subject."""
        now = time.monotonic()
        if now >= self._report_at.get(subject, 0.0):
            self._report_at[subject] = now + REPORT_S
            self._report(words)

    def look(self) -> None:
        """End the copy if a run has continued from it; raise PeerError if its folder is gone."""
        claim = self._claim
        if self._over or claim is None:
            return
        try:
            self._require(claim)
        except _RefusedError as error:
            raise PeerError(f"the replica in {self._root} ends: {error.args[1]}.") from None
        except TakenOverError as error:
            self._over = str(error)
            self._end_sessions()
            for descriptor in self._locks:
                os.close(descriptor)
            self._locks = []
            self._report(
                f"{self._root} was taken over by {newest_owner(self._root / OWNERS)}: it is a copy "
                f"no longer, and its former run is refused."
            )

    def _require(self, claim: Claim) -> None:
        """Raise TakenOverError if a run has continued from the copy."""
        try:
            claim.ownership.require()
        except TakenOverError:
            raise
        except CheckpointError:  # then the run waits: no other run has its checkpoint
            raise _RefusedError(
                LATER,
                f"its folder {self._root} was removed. Start it again on an empty folder that "
                f"holds the former {REPLICA_KEY}, which the host of the run has, too: it gets "
                f"everything then",
            ) from None

    def _end_sessions(self) -> None:
        """Return once no request of the run is in progress, and none of its connections counts."""
        for session in list(self._sessions):
            if session.claim is not None:  # its hello is still in progress, which changes nothing
                with session.busy:
                    session.claim = None

    def _answer(self, session: _Session, request: Fields, payload: bytes) -> Fields:
        try:
            if self._over:
                raise _RefusedError(OVER, self._over)
            op = request.pop("op")
            if op == "hello":
                return self._hello(session, **request)
            claim = session.claim
            if claim is None:
                raise _RefusedError(LATER, "another run began")
            self._require(claim)
            answer: Fields = getattr(self, f"_do_{op}")(payload, **request) or {}
            self._require(claim)  # after it was written, and before it is acknowledged
            return answer
        except _RefusedError as error:
            kind, words = error.args
        except TakenOverError as error:
            kind = OVER
            words = str(error)
        except (CheckpointError, InUseError) as error:
            kind = REFUSED
            words = str(error)
        except (OSError, PeerError) as error:
            kind = LATER
            words = f"its disk refuses: {error}"
            self._report_seldom("disk", f"{words}. The run waits until it does not.")
        return {"error": kind, "words": words}

    # -- the hello

    def _hello(
        self, session: _Session, role: str, checkpoint: str, epoch: int, owner: str
    ) -> Fields:
        is_whole = (self._root / FORMAT).exists()
        if is_whole and read_identity(self._root) != checkpoint:
            raise _RefusedError(
                REFUSED,
                f"{self._root} there is the copy of another checkpoint. Stop it, and start it on "
                f"an empty folder.",
            )
        words = f"{COPY}{owner}"
        with self._changing:
            claim = self._claim
            if claim is not None:
                self._require(claim)
            if role == "run" and (claim is None or claim.epoch < epoch):
                claim = self._claim = self._adopted(epoch, words)
                self._report(f"a copy for {owner} (epoch {epoch}), from {session.peer}")
            if claim is None or claim.epoch < epoch:
                raise _RefusedError(LATER, "its run has not begun")
            if claim.epoch > epoch or self._words_of(claim) != words:
                raise _RefusedError(
                    OVER,
                    f"the copy {self._root} is that of another run, whose epoch, {claim.epoch}, is "
                    f"not before this one's, {epoch}. This run ends. Continue from the copy, or, "
                    f"if that is to be given up, start the replica on an empty folder.",
                )
            if role != "run" and not (is_whole and any(lines_in(self._content_of(claim)))):
                raise _RefusedError(LATER, "the copy is not whole yet")
            session.claim = claim
        return {"is_whole": is_whole}

    def _adopted(self, epoch: int, words: str) -> Claim:
        """Adopt a later run's claim for the copy, once no request of the former is in progress."""
        before = self._claim
        claim = adopt_claim(self._root, epoch, words)
        self._end_sessions()
        if before is not None:
            before.release()
        return claim

    def _content_of(self, claim: Claim) -> bytes:
        return Path(claim.ownership.path).read_bytes()

    def _words_of(self, claim: Claim) -> str:
        return self._content_of(claim).partition(b"\n")[0].decode()

    # -- requests of a run

    def _do_ping(self, payload: bytes) -> None:
        """Answer."""

    def _do_list(self, payload: bytes, folders: list[str]) -> Fields:
        root = self._root
        files = []
        for folder in folders:
            top = self._path(folder)
            for path in (top, *sorted(top.rglob("*"))):
                if path.is_dir():
                    sync_folder(path)
                elif self._is_stated(path):
                    size = _synced_size(path)
                    files.append((str(path.relative_to(root)), size, crc_of(path, size)))
        return {"files": files}

    def _is_stated(self, path: Path) -> bool:
        is_whole = path.exists() and not path.name.endswith((PART, ".tmp"))
        return is_whole and path not in self._doubtful

    def _do_write(self, payload: bytes, files: list[tuple[str, int, int, int]]) -> None:
        view = memoryview(payload)
        folders: set[Path] = set()
        for name, size, crc, offset in files:
            content = view[:size]
            view = view[size:]
            if zlib.crc32(content) != crc:
                raise _RefusedError(LATER, f"{name} came damaged")
            path = self._path(name)
            if path.parent not in folders:
                make_private(path.parent, is_durable=True)
            if offset >= 0:
                if self._is_grown(path, content, offset):
                    folders.add(path.parent)
            else:
                self._replace(path, content, is_sent=offset == COMPLETE)
                folders.add(path.parent)
        for folder in folders:
            sync_folder(folder)
        fault_point("replica.written")

    def _replace(self, path: Path, content: memoryview, *, is_sent: bool) -> None:
        unfinished = path.with_name(f"{path.name}{PART}")
        if not is_sent:
            descriptor = os.open(
                unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE
            )
            with _closed(descriptor):
                write_all(descriptor, content)
                os.fsync(descriptor)
        fault_point("replica.rename")
        os.rename(unfinished, path)
        self._doubtful.discard(path)

    def _is_grown(self, path: Path, content: memoryview, offset: int) -> bool:
        """Write a file's end, and sync it; return whether the file is new."""
        is_new = not path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        with _closed(descriptor):
            size = os.fstat(descriptor).st_size
            if size < offset:
                raise _RefusedError(LATER, f"{path.name} has {size} bytes here, not {offset}")
            if size > offset:
                os.ftruncate(descriptor, offset)
            os.lseek(descriptor, offset, os.SEEK_SET)
            write_all(descriptor, content)
            fault_point("replica.append")
            try:
                os.fdatasync(descriptor)
            except OSError:
                self._doubtful.add(path)
                raise
        return is_new

    def _do_delete(self, payload: bytes, names: list[str]) -> None:
        for name in names:
            fault_point("replica.delete")
            self._path(name).unlink(missing_ok=True)

    def _do_begin(self, payload: bytes) -> None:
        """Make the run's line count from now on."""
        claim = self._claim
        assert claim is not None
        before = list(lines_in(self._content_of(claim)))
        for line in lines_in(b"\n" + payload):
            if line not in before:
                claim.fence(line)

    def _do_lease(self, payload: bytes) -> None:
        descriptor = os.open(
            self._root / LEASE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE
        )
        with _closed(descriptor):
            os.pwrite(descriptor, payload, 0)

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or parts[0] in (OWNERS, LOCK):
            raise _RefusedError(REFUSED, f"{name!r} is not the name of a checkpoint's file")
        return self._root / name


def _synced_size(path: Path) -> int:
    """Return a file's size once it is on disk: its writer may have been killed before that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with _closed(descriptor):
        os.fdatasync(descriptor)
        return os.fstat(descriptor).st_size


@contextlib.contextmanager
def _closed(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def keep(
    root: Path,
    host: str,
    port: int,
    pem: Pem | None,
    is_stopping: threading.Event,
    report: Callable[[str], None],
) -> None:
    """Keep the copy in ``root`` until a stop is requested.  Raises PeerError, CheckpointError."""
    keeper = Keeper(root, report)
    key = keeper.key(pem.certificate if pem else "")
    try:
        listener = TaskListener(host, bytes.fromhex(key.secret), reachable_as=host, port=port)
    except OSError as error:
        raise PeerError(
            f"the replica cannot listen on {host}:{port}: {error.strerror or error}. Give an "
            f"address of this host, and a port that no other program uses."
        ) from error
    with listener:
        listener.secure(pem)
        listener.begin(
            lambda connection: threading.Thread(
                target=keeper.serve, args=(connection,), daemon=True
            ).start(),
            keeper.refused,
        )
        report(f"replica in {root}, reached at {host}:{listener.address[1]}")
        while not is_stopping.wait(LOOK_S):
            keeper.look()
