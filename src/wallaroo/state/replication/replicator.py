"""Run side of a checkpoint's copy on a second host.

The invariants:

* A commit counts once the replica has answered that it, and all files that it names, are on its
  disk, and that this run owns the copy.  The folder is ahead by one commit at most.
* Without an answer it waits until the run ends.
* A connection begins with a comparison of the files, so nothing depends on what was sent before.
  New files are sent first, then commits, the line of the claim, `format.json`, and finally
  deletions.
* Output that a task is writing is incomplete in the copy; its commit sends all of it.
* Spools are sent by their writers (`spool.copy`); only a new copy gets their content with the rest,
  before its writers may connect.
* Sinks' notes are sent with the commit whose output they precede; staged output is deleted in the
  copy after notes that are newer than the list of deletions.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from wallaroo.errors import CheckpointError, PeerError, TakenOverError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.network.replica import Replica
from wallaroo.network.replica_link import RETRY_S, Outage, ReplicaLink, Sent
from wallaroo.spool.copying import is_copied
from wallaroo.state.log import layout
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.lease import LEASE, RENEW_S
from wallaroo.state.log.owners import Claim
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.store.stored_checkpoint import files_of, outbox_files, rank_of

TEXTS = (layout.PLAN, layout.ORIGIN)
SWEPT = (layout.COMMITS, layout.DELTAS, layout.SNAPSHOTS, layout.OUTBOX)
Stamp = tuple[int, int, int]
Answer = TypeVar("Answer")
_log = logging.getLogger("wallaroo.run")


class _Files:
    """The files of a checkpoint, and those that its copy has."""

    def __init__(self, root: Path, claim: Claim):
        self._root = root
        self._claim = claim
        self._storage = LocalStorage(str(root), is_durable=True)
        self._before: Commit | None = None
        self._sizes: dict[str, int] = {}  # the copy's files of commits, output when it connected
        self._stamps: dict[str, Stamp] = {}  # texts and notes, as last sent
        self._there: set[str] = set()  # files of the copy that may be deleted later

    def bring_up(self, link: ReplicaLink, *, is_new: bool) -> None:
        """Bring the copy to the state of the folder."""
        root = self._root
        stated = link.stated((*SWEPT, *TEXTS, *((layout.SPOOL,) if is_new else ())))
        fault_point("replicator.compare")
        spools = spool_files(root) if is_new else ()
        # a commit that is published from here on is sent by itself, after its files
        commits = _sizes(root, _names_in(root, (layout.COMMITS,)))
        outbox = _outbox(root)
        self._sizes = commits | _sizes(root, outbox)  # a task may be adding to its output
        names = [*_names_in(root, (layout.DELTAS, layout.SNAPSHOTS)), *outbox, *TEXTS, *spools]
        there = link.bring(root, names, stated)
        there += link.bring(root, commits, stated, commits)
        fault_point("replicator.line")
        link.ask("begin", Path(self._claim.ownership.path).read_bytes().partition(b"\n")[2])
        link.write([Sent(layout.FORMAT, (root / layout.FORMAT).read_bytes())])
        link.ask("delete", names=sorted(stated.keys() - there))
        self._there = {name for name in there if name.startswith(SWEPT)}
        self._stamps.clear()
        fault_point("replicator.whole")

    def send(self, link: ReplicaLink, commit: Commit) -> None:
        """Send a published commit, with the files that it names."""
        files = [*self._staged(commit), *self._changed_notes(), *self._changed_commits()]
        link.write(files)
        self._there.update(each.name for each in files)
        self._before = commit

    def sweep(self, link: ReplicaLink) -> None:
        """Delete in the copy what the folder no longer holds."""
        left = set(_names_in(self._root, (layout.COMMITS, layout.DELTAS, layout.SNAPSHOTS)))
        left.update(_outbox(self._root))
        gone = self._there - left
        link.write(self._changed_notes())
        fault_point("replicator.sweep")
        link.ask("delete", names=sorted(gone))
        self._there -= gone
        for name in gone:
            self._sizes.pop(name, None)
            self._stamps.pop(name, None)

    def _staged(self, commit: Commit) -> Iterator[Sent]:
        for name in files_of(commit, self._before):
            if name not in self._there or self._has_grown(name):
                yield Sent(name, self._storage.read(name))
                self._sizes.pop(name, None)

    def _has_grown(self, name: str) -> bool:
        """Return whether the copy connected while a file of output was being written."""
        size = self._sizes.get(name)
        return size is not None and size != (self._root / name).stat().st_size

    def _changed_notes(self) -> Iterator[Sent]:
        """Yield the plan's and the sinks' files that changed since they were sent."""
        notes = (path for path in outbox_files(self._root) if rank_of(path))
        for path in (*(self._root / name for name in TEXTS), *notes):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                name = str(path.relative_to(self._root))
                stamp = status.st_mtime_ns, status.st_size, status.st_ino
                if self._stamps.get(name) != stamp:
                    yield Sent(name, path.read_bytes())
                    self._stamps[name] = stamp

    def _changed_commits(self) -> Iterator[Sent]:
        """Yield the additions to the files of commits."""
        for name in _names_in(self._root, (layout.COMMITS,)):
            before = self._sizes.get(name)
            with open(self._root / name, "rb") as file:
                file.seek(before or 0)
                content = file.read()
            if before is None or content:
                yield Sent(name, content, before or 0)
            self._sizes[name] = (before or 0) + len(content)


class Replicator:
    """The copy of a run's checkpoint, from claim to end."""

    def __init__(
        self,
        root: Path,
        replica: Replica,
        claim: Claim,
        checkpoint: str,
        sweep_every: int = DEFAULT.sweep_every,
    ):
        owner = Path(claim.ownership.path).read_bytes().partition(b"\n")[0].decode()
        self.replica = replace(replica, checkpoint=checkpoint, epoch=claim.epoch, owner=owner)
        self._files = _Files(root, claim)
        self._link: ReplicaLink | None = None
        self._lock = threading.RLock()  # the link's
        self._outage = Outage(replica.place, "acknowledgements, commits and output")
        self._is_over = threading.Event()
        self._error: TakenOverError | CheckpointError | None = None
        self._commits = 0  # since the last sweep
        self._sweep_every = sweep_every
        self._lease = _LeaseSender(root / LEASE, self.replica)
        self._beating = threading.Thread(target=self._beat, name="wallaroo-replica", daemon=True)

    # -- the start and the end

    def begin(self, is_stopping: Callable[[], bool], note: Callable[[str], None]) -> None:
        """Return once the copy matches the folder.  Raises as `append`; also if the run stops."""

        def is_ending() -> bool:
            if self.waiting_for:
                note(f"waiting for {self.waiting_for}")
            return is_stopping()

        self._asked(lambda link: None, is_ending)
        _log.info(
            "the copy at %s matches the checkpoint (epoch %d)",
            self.replica.place,
            self.replica.epoch,
        )
        self._beating.start()

    def close(self) -> None:
        """End the use of the copy; a commit that waits for it raises."""
        self._is_over.set()
        if self._beating.is_alive():
            self._beating.join()
        with self._lock:
            self._disconnect()

    def end_in_order(self) -> None:
        """Let standbys that follow the copy read the lease, so that they end, too."""
        with contextlib.suppress(OSError, EOFError, TakenOverError, CheckpointError):
            self._lease.send()
        self._lease.close()

    # -- what a checkpoint asks

    def append(self, commit: Commit) -> None:
        """Return once a commit that was published in the folder is in the copy.

        Raises TakenOverError if another run owns the copy, CheckpointError if it is another
        checkpoint's, PeerError if the run ends first.
        """
        fault_point("replicator.append")
        self._asked(lambda link: self._files.send(link, commit))
        fault_point("replicator.appended")
        self._commits += 1

    def housekeep(self, commits: Iterable[Commit]) -> None:
        """Delete in the copy, after some commits, files that the folder no longer holds."""
        if self._commits >= self._sweep_every:
            self._commits = 0
            self._asked(self._files.sweep)

    def require(self) -> None:
        """Raise TakenOverError if another run is known to own the copy."""
        if self._error is not None:
            raise self._error

    def ask(self) -> None:
        """Raise TakenOverError if another run owns the copy; return once it answers."""
        self._asked(lambda link: link.ask("ping"))

    @property
    def waiting_for(self) -> str:
        """Return a message that the copy confirms nothing; empty if it does."""
        outage = self._outage
        return outage.cause if outage.is_late else ""

    @property
    def silent_s(self) -> float:
        """Return the seconds since the copy last confirmed, or 0 if it does."""
        return self._outage.seconds

    # -- the link

    def _asked(
        self, work: Callable[[ReplicaLink], Answer], is_ending: Callable[[], bool] = lambda: False
    ) -> Answer:
        """Return the result of ``work`` with a link, after as many attempts as necessary."""
        while True:
            try:
                with self._lock:
                    if self._link is None:
                        self._link = self._connected()
                    answer = work(self._link)
            except (TakenOverError, CheckpointError) as error:
                self._error = error
                raise
            except (OSError, EOFError) as error:
                self._fail(error)
            else:
                self._answered()
                return answer
            if is_ending() or self._is_over.wait(RETRY_S):
                raise PeerError(
                    f"the run ends although the replica at {self.replica.place} did not answer: "
                    f"what it does not have was neither acknowledged nor sent."
                )

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._disconnect()
        if self._outage.failed(error):
            _log.warning("%s", self._outage.words)

    def _answered(self) -> None:
        if seconds := self._outage.ended():
            _log.warning(
                "the replica at %s confirms again after %.0f s", self.replica.place, seconds
            )

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connected(self) -> ReplicaLink:
        """Return a link to a copy that matches the folder."""
        link = ReplicaLink(self.replica, "run")
        try:
            self._files.bring_up(link, is_new=not link.hello["is_whole"])
        except BaseException:
            link.close()
            raise
        return link

    # -- the lease

    def _beat(self) -> None:
        """Send the lease to the copy, for standbys there; learn whether this run owns it."""
        while not self._is_over.wait(RENEW_S):
            try:
                self._lease.send()
            except (TakenOverError, CheckpointError) as error:
                self._error = error
                break
            except (OSError, EOFError) as error:
                self._reconnect(error)
            else:
                self._reconnect(None)
        self._lease.close()

    def _reconnect(self, error: BaseException | None) -> None:
        """Bring the copy up to date, unless a commit does; an idle run has none."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if error is not None:
                self._fail(error)
            if self._link is None:
                self._link = self._connected()
            self._answered()
        except (OSError, EOFError) as failure:
            self._fail(failure)
        except (TakenOverError, CheckpointError) as reason:
            self._error = reason
        finally:
            self._lock.release()


class _LeaseSender:
    """Connection that carries a run's lease to the copy."""

    def __init__(self, path: Path, replica: Replica):
        self._path = path
        self._replica = replica
        self._link: ReplicaLink | None = None

    def send(self) -> None:
        """Send the lease; learn whether the run owns the copy.  Raises as `ReplicaLink` does."""
        try:
            if self._link is None:
                self._link = ReplicaLink(self._replica, "lease")
            self._link.ask("lease", self._path.read_bytes())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def _names_in(root: Path, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for name in sorted(os.listdir(root / folder)):
            if not name.startswith("."):
                yield f"{folder}/{name}"


def _sizes(root: Path, names: Iterable[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # its output was sent
            sizes[name] = (root / name).stat().st_size
    return sizes


def _outbox(root: Path) -> list[str]:
    paths = sorted(outbox_files(root), key=lambda path: (rank_of(path), path))
    return [str(path.relative_to(root)) for path in paths]


def spool_files(root: Path) -> Iterator[str]:
    """Yield the names of the spools' files that a copy needs."""
    for path in sorted((root / layout.SPOOL).glob("*.spool/*")):
        if path.is_file() and is_copied(path.name):
            yield str(path.relative_to(root))
