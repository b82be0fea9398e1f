"""Which worker owns which key groups."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.engine.blocks.keys import groups_of_task
from wallaroo.engine.blocks.shares import shares
from wallaroo.runtime.placement import (
    Copies,
    Member,
    Ownership,
    Replicas,
    replicas,
    spread,
    tasks_for,
)

GROUPS = 128


def hosts(count: int, cores: int = 2) -> tuple[Member, ...]:
    return tuple(Member(f"host{number}", f"worker-{number}", cores) for number in range(count))


def held_by(placement: tuple[str, ...], members: tuple[Member, ...], batch: int) -> Copies:
    """The copies there are after a batch placed so."""
    workers = {member.host: member.worker for member in members}
    copies: dict[str, dict[int, int]] = {}
    for task, host in enumerate(placement):
        for group in range(*groups_of_task(task, len(placement), GROUPS)):
            copies.setdefault(workers[host], {})[group] = batch
    return Copies(copies)


def owners(placement: tuple[str, ...]) -> dict[int, str]:
    tasks = len(placement)
    return {
        group: host
        for task, host in enumerate(placement)
        for group in range(*groups_of_task(task, tasks, GROUPS))
    }


def moved(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    return sum(owners(before)[group] != owners(after)[group] for group in range(GROUPS))


@given(st.lists(st.integers(1, 64), min_size=1, max_size=20), st.integers(1, GROUPS))
def test_every_task_has_a_host_and_shares_follow_cores(cores: list[int], tasks: int) -> None:
    members = tuple(
        Member(f"host{number}", f"host{number}", count) for number, count in enumerate(cores)
    )
    placement = spread(tasks, GROUPS, members, Copies({}), 0)
    assert len(placement) == tasks
    given_out = Counter(placement)
    expected = shares(tasks, cores)
    assert [given_out[member.host] for member in members] == expected
    for member, share in zip(members, expected, strict=True):
        assert abs(share - tasks * member.cores / sum(cores)) < 1


@pytest.mark.parametrize("count", [2, 3, 5])
def test_on_an_unchanged_cluster_nothing_moves(count: int) -> None:
    members = hosts(count)
    before = spread(2 * count, GROUPS, members, Copies({}), 0)
    assert spread(2 * count, GROUPS, members, held_by(before, members, 9), 10) == before


def test_small_batches_leave_key_groups_where_large_ones_have_them() -> None:
    members = hosts(4, cores=8)
    large = spread(32, GROUPS, members, Copies({}), 0)
    for tasks in (4, 8, 16):
        assert moved(large, spread(tasks, GROUPS, members, held_by(large, members, 9), 10)) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_joining_host_gets_its_share_and_no_more_moves(count: int) -> None:
    old, new = hosts(count), hosts(count + 1)
    before = spread(2 * count, GROUPS, old, Copies({}), 0)
    after = spread(2 * (count + 1), GROUPS, new, held_by(before, old, 9), 10)
    joined = sum(host == f"host{count}" for host in owners(after).values())
    assert GROUPS / (count + 1) * 0.8 <= joined <= GROUPS / (count + 1) * 1.2
    # ranges of tasks shift a little: more tasks, smaller ranges
    assert moved(before, after) <= 2 * joined


def test_key_groups_of_a_lost_host_go_where_an_older_copy_is() -> None:
    members = hosts(3)
    before = spread(6, GROUPS, members, Copies({}), 0)
    copies = {worker: dict(held) for worker, held in held_by(before, members, 99).by_worker.items()}
    lost = [group for group, host in owners(before).items() if host == "host2"]
    copies["worker-1"] |= dict.fromkeys(lost, 80)  # it had them before host2 joined
    after = owners(spread(2, GROUPS, members[:2], Copies(copies), 100))
    assert sum(after[group] == "host1" for group in lost) == len(lost)


def test_a_copy_older_than_every_snapshot_attracts_nothing() -> None:
    assert Copies({"one": {1: 5}}).warmth("one", 1, 500) == 0


def test_hosts_with_unlike_cores_always_get_all_tasks() -> None:
    members = (Member("a", "a", 2), Member("b", "b", 6))
    assert tasks_for(1, members, 8) == 8


def test_ownership_knows_who_has_what_and_where_copies_are() -> None:
    ownership = Ownership(8)
    ownership.ran(2, {0: "one", 1: "two"}, 5)
    assert ownership.by_worker() == {"one": (0, 1, 2, 3), "two": (4, 5, 6, 7)}
    ownership.ran(2, {0: "two", 1: "two"}, 6)
    assert ownership.by_worker() == {"two": tuple(range(8))}
    assert ownership.copies.warmth("one", 0, 7) > 0


@given(st.integers(2, 6), st.integers(1, 4))
def test_after_the_loss_of_any_host_the_others_hold_all_that_they_get(
    count: int, cores: int
) -> None:
    members = hosts(count, cores)
    before = spread(count * cores, GROUPS, members, Copies({}), 0)
    owned = held_by(before, members, 9)
    copied = replicas(before, GROUPS, members, lambda rest: len(rest) * cores, Copies({}), 9)
    held = {member.host: set(owned.by_worker[member.worker]) for member in members}
    for task, groups in enumerate(copied):
        assert held[before[task]].isdisjoint(groups)
        held[before[task]] |= set(groups)
    for lost in members:
        rest = tuple(member for member in members if member is not lost)
        copies = Copies({member.worker: dict.fromkeys(held[member.host], 9) for member in rest})
        after = owners(spread(len(rest) * cores, GROUPS, rest, owned, 10))
        assert all(group in held[host] for group, host in after.items())
        assert all(copies.warmth(f"worker-{host[4:]}", group, 10) for group, host in after.items())


def test_a_single_host_copies_nothing() -> None:
    assert replicas(("host0",) * 2, GROUPS, hosts(1), lambda rest: 2, Copies({}), 0) == ((), ())


def test_copies_count_once_a_task_has_filled_them() -> None:
    kept = Replicas(((4, 5), (0, 1)))
    assert kept.groups_by_worker == {}
    kept.note(0, "one")
    kept.note(0, "one")
    assert kept.groups_by_worker == {"one": (4, 5)}
