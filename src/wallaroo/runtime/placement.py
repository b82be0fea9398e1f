"""Placement of key groups on workers: balanced by cores, rarely moved.

Where it runs: pure (driver).  A task of a batch owns a contiguous range of key groups
(``engine.keys.groups_of_task``); a placement is the preferred host of each task.  For Spark it is a
request, not a guarantee: the task's report names the worker on which it ran.

Tasks are spread so that as little as possible moves when the cluster changes: a host's share of the
tasks is its share of the cores (largest remainder).  Tasks then choose hosts in order of warmth:
the share of a task's key groups whose state the host's view holds, newer copies counting more.  So
on an unchanged cluster nothing moves; a joining host gets only its share; and the groups of a lost
host move to a host with an older copy of them, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from wallaroo.engine.blocks.keys import groups_of_task
from wallaroo.engine.blocks.shares import shares

# a copy of a key group that is this many batches behind is useless: its snapshot is newer
# (state.snapshots)
OLD = 64


@dataclass(frozen=True, slots=True)
class Member:
    """A host of the cluster that is ready for tasks."""

    host: str  # as Spark names it
    worker: str  # as its tasks name themselves
    cores: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of key groups.

    Worker -> key group -> the batch after which its view holds it.
    """

    by_worker: Mapping[str, Mapping[int, int]]

    def warmth(self, worker: str, group: int, batch: int) -> float:
        """Return 0 (no use) to 1 (newest) for a worker's copy of a key group.

        >>> copies = Copies({"one": {7: 99, 8: 67}})
        >>> copies.warmth("one", 7, 100), copies.warmth("one", 8, 100), copies.warmth("two", 7, 100)
        (1.0, 0.25, 0.0)
        """
        held = self.by_worker.get(worker, {}).get(group)
        if held is None or batch - held > OLD:
            return 0.0
        return 1.0 if batch - held <= 1 else 0.5 * (1 - (batch - held - 1) / OLD)

    def with_owned(self, owned: Mapping[str, Iterable[int]], batch: int) -> Copies:
        """Return these copies and the newest ones, by worker, of the key groups that it owns."""
        workers = self.by_worker.keys() | owned.keys()
        return Copies(
            {
                worker: {
                    **self.by_worker.get(worker, {}),
                    **dict.fromkeys(owned.get(worker, ()), batch),
                }
                for worker in workers
            }
        )


def tasks_for(requested: int, members: Iterable[Member], tasks_max: int) -> int:
    """Return how many tasks a batch gets if it asks for ``requested``.

    With several hosts every host gets the same number (as far as cores are the same everywhere), so
    that a host owns the same key groups in small batches as in large ones.

    >>> pair = (Member("a", "a", 4), Member("b", "b", 4))
    >>> [tasks_for(requested, pair, 8) for requested in (1, 2, 3, 8)], tasks_for(3, pair[:1], 4)
    ([2, 2, 4, 8], 3)
    """
    cores = [member.cores for member in members]
    if len(cores) < 2:
        return min(requested, tasks_max)
    if len(set(cores)) > 1:
        return tasks_max
    return min(math.ceil(requested / len(cores)) * len(cores), tasks_max)


def spread(
    tasks: int, key_groups: int, members: tuple[Member, ...], copies: Copies, batch: int
) -> tuple[str, ...]:
    """Return the host of each task of a batch.

    >>> pair = (Member("a", "a", 1), Member("b", "b", 1))
    >>> spread(2, 4, pair, Copies({"b": {0: 9, 1: 9}}), 10), spread(4, 4, pair, Copies({}), 10)
    (('b', 'a'), ('a', 'a', 'b', 'b'))
    """
    free = shares(tasks, [member.cores for member in members])
    warmth = {
        (task, number): sum(
            copies.warmth(member.worker, group, batch)
            for group in range(*groups_of_task(task, tasks, key_groups))
        )
        for task in range(tasks)
        for number, member in enumerate(members)
    }
    chosen: dict[int, int] = {}
    for task, number in sorted(
        (pair for pair in warmth if warmth[pair] > 0), key=lambda pair: (-warmth[pair], pair)
    ):
        if task not in chosen and free[number] > 0:
            chosen[task] = number
            free[number] -= 1
    for task in range(tasks):
        if task not in chosen:
            number = next(number for number, left in enumerate(free) if left > 0)
            chosen[task] = number
            free[number] -= 1
    return tuple(members[chosen[task]].host for task in range(tasks))


def replicas(
    hosts: tuple[str, ...],
    key_groups: int,
    members: tuple[Member, ...],
    tasks_of: Callable[[tuple[Member, ...]], int],
    copies: Copies,
    batch: int,
) -> tuple[tuple[int, ...], ...]:
    """Return, by task, the additional key groups of which its host keeps a copy.

    These are the groups that the host would own after the loss of any one other host, so that they
    need not be read from the checkpoint then.  ``hosts`` are those of the tasks, ``tasks_of``
    returns the number of tasks that some members run.

    >>> trio = (Member("a", "a", 1), Member("b", "b", 1), Member("c", "c", 1))
    >>> replicas(("a", "b", "c"), 6, trio, len, Copies({}), 0)
    ((2,), (0, 1, 4, 5), (3,))
    """
    owned: dict[str, set[int]] = {member.host: set() for member in members}
    for task, host in enumerate(hosts):
        owned[host].update(range(*groups_of_task(task, len(hosts), key_groups)))
    present = copies.with_owned({member.worker: owned[member.host] for member in members}, batch)
    wanted: dict[str, set[int]] = {member.host: set() for member in members}
    for lost in members:
        rest = tuple(member for member in members if member != lost)
        if not rest:
            break
        tasks = tasks_of(rest)
        for task, host in enumerate(spread(tasks, key_groups, rest, present, batch)):
            wanted[host].update(range(*groups_of_task(task, tasks, key_groups)))
    shares_by_task: list[tuple[int, ...]] = [()] * len(hosts)
    for host, groups in wanted.items():
        tasks_there = [task for task, name in enumerate(hosts) if name == host]
        copied = sorted(groups - owned[host])
        for number, task in enumerate(tasks_there):
            first, end = groups_of_task(number, len(tasks_there), len(copied))
            shares_by_task[task] = tuple(copied[first:end])
    return tuple(shares_by_task)


class Replicas:
    """Complete copies that hosts keep of others' key groups.

    ``by_task``: as `replicas` returns them.
    """

    def __init__(self, by_task: tuple[tuple[int, ...], ...]):
        self._by_task = by_task
        self.groups_by_worker: dict[str, tuple[int, ...]] = {}

    def note(self, task: int, worker: str) -> None:
        """Record that a task has updated its copy."""
        copied = {*self.groups_by_worker.get(worker, ()), *self._by_task[task]}
        self.groups_by_worker[worker] = tuple(sorted(copied))


class Ownership:
    """The last owners of key groups, and the copies."""

    def __init__(self, key_groups: int):
        self._key_groups = key_groups
        self._copies: dict[str, dict[int, int]] = {}
        self.owners: dict[int, str] = {}

    @property
    def copies(self) -> Copies:
        """Return the copies of all known workers."""
        return Copies(self._copies)

    def ran(self, tasks: int, workers: Mapping[int, str], held: int) -> None:
        """Note that tasks ran on ``workers`` (task -> worker), whose views are at ``held``."""
        for task, worker in workers.items():
            copies = self._copies.setdefault(worker, {})
            for group in range(*groups_of_task(task, tasks, self._key_groups)):
                self.owners[group] = worker
                copies[group] = held

    def warmed(self, worker: str, groups: Iterable[int], held: int) -> None:
        """Note that a worker's view of groups that it did not own was brought to ``held``."""
        self._copies.setdefault(worker, {}).update(dict.fromkeys(groups, held))

    def by_worker(self) -> dict[str, tuple[int, ...]]:
        """Return the key groups that each worker owns, in ascending order."""
        found: dict[str, list[int]] = {}
        for group in sorted(self.owners):
            found.setdefault(self.owners[group], []).append(group)
        return {worker: tuple(groups) for worker, groups in found.items()}
