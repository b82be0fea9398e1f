"""Recovery: a run's start from its checkpoint, and its step table.

``inspection.compatibility`` decides whether the application may continue at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from wallaroo.dataflow.plan.model import ENTRY_KINDS, PANES
from wallaroo.engine.stores.sorted_state import ENTRIES, namespace
from wallaroo.monitoring.metrics.status import SinkLine, SourceStatus
from wallaroo.state.log.commits import Commit


def step_table(
    last: Commit | None, names: Sequence[str], dropped: frozenset[str]
) -> tuple[str, ...]:
    """Return the step table of the next commits.

    Known steps keep their number, new ones get a new one, dropped ones lose their name.  Windows
    that are stored by key, as all were in earlier versions, do not get panes.

    >>> step_table(Commit(7, {}, steps=("a", "b")), ["b", "c"], frozenset({"b"}))
    ('a', 'b (dropped after batch 7)', 'b', 'c')
    >>> step_table(Commit(7, {}, steps=("a: entries",)), ["a: panes", "a: entries"], frozenset())
    ('a: entries',)
    """
    table = (
        [
            f"{name} (dropped after batch {last.batch})" if name in dropped else name
            for name in last.steps
        ]
        if last
        else []
    )
    by_key = {
        namespace(step, PANES)
        for step, _, kind in (name.rpartition(": ") for name in table)
        if kind == ENTRIES
    }
    return (*table, *(name for name in names if name not in table and name not in by_key))


def with_namespaces(dropped: Iterable[str]) -> frozenset[str]:
    """Return names of steps, and the names under which their ordered entries are stored.

    >>> "a: due" in with_namespaces(["a"])
    True
    """
    names = {namespace(name, kind) for name in dropped for kind in ENTRY_KINDS}
    return frozenset({*dropped, *names})


def describe(
    last: Commit | None, sources: Sequence[SourceStatus], sinks: Sequence[SinkLine]
) -> str:
    """Describe, in one line, the point from which the run continues."""
    if last is None:
        return "nothing committed yet: state begins empty"
    at = datetime.fromtimestamp(last.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    log = sum(delta.size for delta in last.deltas) + sum(
        snapshot.size for snapshot in last.snapshots
    )
    waiting = sum(source.backlog_events for source in sources)
    pending = sum(sink.pending_bytes for sink in sinks)
    return (
        f"continuing from commit {last.batch} of {at}: "
        f"{sum(events for _, events in last.offsets.values()):,} events are in the state ({log:,} "
        f"bytes of snapshots and newest deltas), {waiting:,} accepted events wait to be processed, "
        f"{pending:,} bytes of committed output wait to be sent"
    )
