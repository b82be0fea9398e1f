"""A verification on a cluster that changes while events flow.

Where it runs: the verifier; Spark's Master, its Workers and the run are its children.

The cluster grows, shrinks and breaks.  The changes, in the order given:

``grow1``, ``grow2``       one or two workers are added
``shrink1``, ``shrink2``   the newest one or two workers are decommissioned and leave
``kill``, ``kill2``        SIGKILL for the newest worker and all its processes while batches run;
                           ``kill2``: and for the next one immediately
``revive``                 killed workers are restarted, under their names
``master``                 SIGKILL for the Master; batches have to continue without it; then it is
                           restarted
``driver``                 SIGKILL for the driver, workers are left behind; the run is restarted
``ingress``, ``egress``    SIGKILL for a process of the driver, which the run replaces

After every change the run's own status has to list exactly the live workers, each with key groups,
and every key group owned once; then output has to flow.  While no worker is left nothing is owned
and nothing flows, and the run has to wait for the next one.  At the end everything is compared with
the oracle.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from wallaroo.dataflow.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.client import ask
from wallaroo.monitoring.status_api.discovery import run_of
from wallaroo.monitoring.status_api.queries import STATUS_PATH
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.testing.verify.disturbances.nemesis import END_S_MAX
from wallaroo.testing.verify.injectors import Injection
from wallaroo.testing.verify.trial.processes import Kind, find, kill

SIZES = {"grow1": 1, "grow2": 2, "shrink1": -1, "shrink2": -2}
OF_THE_RUN = ("driver", "ingress", "egress")
CHANGES = (*SIZES, "kill", "kill2", "revive", "master", *OF_THE_RUN)
FAILURES = ("kill", "revive", "kill2", "revive", "master", *OF_THE_RUN)
MID_BATCH_S = 0.6  # at most, from a commit to a kill: batches take about half a second
ANSWER_S_MAX = 5.0  # for the run's status
MEMBERS_S_MAX = 900.0  # until the run's status shows a change: a busy machine needs minutes


def every_pair(smallest: int, largest: int, start: int) -> tuple[str, ...]:
    """Return a sequence of changes in which every ordered pair of changes occurs just once.

    Changes grow or shrink the cluster by one or two workers.  Their number starts at ``start`` and
    stays between ``smallest`` and ``largest``.

    >>> walk = every_pair(1, 5, 2)
    >>> len(walk), len(set(zip(walk, walk[1:])))
    (17, 16)
    """
    pairs = len(SIZES) ** 2

    def walk(done: list[str], size: int, used: frozenset[tuple[str, str]]) -> list[str] | None:
        if len(used) == pairs:
            return done
        for change, by in SIZES.items():
            pair = (done[-1], change) if done else None
            if not smallest <= size + by <= largest or pair in used:
                continue
            found = walk([*done, change], size + by, used | {pair} if pair else used)
            if found:
                return found
        return None

    found = walk([], start, frozenset())
    if found is None:
        raise ValueError(f"no walk over all pairs between {smallest} and {largest} workers")
    return tuple(found)


def workers_after(changes: Sequence[str], start: int) -> int:
    """Return how many workers live after changes of a cluster that starts with ``start``.

    >>> workers_after(("kill2", "revive", "grow1"), 2), workers_after(("kill2",), 2)
    (3, 0)
    """
    living, dead = start, 0
    for change in changes:
        killed = min(living, {"kill": 1, "kill2": 2}.get(change, 0))
        revived = dead if change == "revive" else 0
        living += SIZES.get(change, 0) + revived - killed
        dead += killed - revived
    return living


class Changes:
    """Changes of a cluster."""

    def __init__(self, injection: Injection, cluster: LocalCluster, changes: tuple[str, ...]):
        self._injection = injection
        self._cluster = cluster
        self._changes = changes
        self._moves: list[str] = []  # the run's report on each change

    def disturb(self, began: float) -> None:
        """Carry out all changes, in order."""
        chance = random.Random(f"changes {self._injection.options.seed}")
        self._await_members("at the start")
        for number, change in enumerate(self._changes, 1):
            self._make(number, change, chance)

    def _make(self, number: int, change: str, chance: random.Random) -> None:
        injection = self._injection
        injection.progress.mark()
        if self._living():
            injection.await_progress(f"output before change {number}")
        injection.watch.pause(chance.uniform(0, MID_BATCH_S))
        injection.progress.mark()
        injection.say(
            f"change {number}: {change}, {len(self._living())} workers, after batch "
            f"{injection.progress.batch}"
        )
        self._apply(change)
        injection.result.disturbances += 1
        injection.result.changes[change] += 1
        if not self._living():
            injection.say("  no worker is left")
            return
        self._await_members(f"after change {number}, {change}")
        injection.await_progress(f"output after change {number}, {change}")
        if change not in ("master", *OF_THE_RUN):
            what = f"what change {number}, {change}, moved"
            injection.watch.await_(self._has_reported, MEMBERS_S_MAX, what)
            injection.say(f"  {self._moves[-1]}")

    def _apply(self, change: str) -> None:
        if change in SIZES:
            for _ in range(SIZES[change]):
                self._cluster.add_worker()
            for _ in range(-SIZES[change]):
                self._cluster.remove_worker()
        elif change == "revive":
            for name in [name for name in self._cluster.workers() if name not in self._living()]:
                self._cluster.add_worker(name)
        elif change == "master":
            self._cluster.kill_master()
            self._injection.await_progress("output without a master")
            self._cluster.restart_master()
            self._injection.progress.mark()
        elif change in OF_THE_RUN:
            kind = Kind(change)
            if kind is Kind.DRIVER:
                self._injection.watch.expect_end(END_S_MAX)
            kill(find(self._injection.run.pid)[kind][0])
            self._count(kind)
        else:
            for name in reversed(self._living()[-2 if change == "kill2" else -1 :]):
                self._cluster.kill_worker(name)
                self._count(Kind.WORKER)

    def _count(self, kind: Kind) -> None:
        self._injection.progress.note_kill(kind)
        self._injection.result.kills[kind] += 1

    def _living(self) -> list[str]:
        return [worker.name for worker in self._cluster.status().workers if worker.state != "dead"]

    # -- the run's own status
    # ---------------------------------------------------------------------------------------------

    def _await_members(self, when: str) -> None:
        expected = sorted(self._living())
        seen = ""

        def are_right() -> bool:
            nonlocal seen
            workers = self._status().get("workers", [])
            owned = sorted(group for worker in workers for group in worker["key_groups"])
            seen = ", ".join(
                f"{worker['name']} with {len(worker['key_groups'])} key groups"
                for worker in workers
            )
            names = sorted(worker["name"] for worker in workers)
            return (
                names == expected
                and owned == list(range(KEY_GROUPS_DEFAULT))
                and all(worker["key_groups"] for worker in workers)
            )

        try:
            self._injection.watch.await_(
                are_right, MEMBERS_S_MAX, f"key groups on {', '.join(expected)} {when}"
            )
        except PeerError as error:
            raise PeerError(f"{error}\nThe run's status shows: {seen or 'nothing'}") from error
        self._injection.say(f"  {seen}")

    def _has_reported(self) -> bool:
        """Return whether the run reports what a new change moved, and note the report."""
        moved = str(self._status().get("moved", ""))
        if not moved or moved == (self._moves[-1] if self._moves else ""):
            return False
        self._moves.append(moved)
        return True

    def _status(self) -> dict[str, Any]:
        """Return the run's answer to /status, {} while it is unavailable."""
        record = run_of(self._injection.folder / "checkpoint")
        if record is None or not record.is_alive:
            return {}
        try:
            return dict(json.loads(ask(record.address, STATUS_PATH, ANSWER_S_MAX).body))
        except PeerError:
            return {}
