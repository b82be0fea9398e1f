"""Inputs and effects of the steps of one level.

They are the states, ordered entries, outputs and failures of one task of one batch.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wallaroo.engine.dead_letters import writer_of
from wallaroo.engine.failures import Failures
from wallaroo.engine.keyed_state import KeyedState, Read
from wallaroo.engine.keys import Key
from wallaroo.engine.ordered_entries import EntryReader, Groups, NothingStored, namespace
from wallaroo.engine.ordered_keys import TIME_MAX
from wallaroo.engine.packing import Packing
from wallaroo.engine.step_store import StepStore
from wallaroo.plan.model import Plan
from wallaroo.steps import Step

ReadState = Callable[[str], Read]  # state step name -> read function
OpenEntries = Callable[[str], EntryReader]  # name in the step table -> what was committed
ListKeys = Callable[[str], Iterable[Key]]  # state step name -> keys that have committed state


def _no_state(step: str) -> Read:
    return _no_value


def _no_value(key: Key) -> None:
    return None


def _nothing_stored(name: str) -> EntryReader:
    return NothingStored()


def _no_keys(step: str) -> Iterable[Key]:
    return ()


@dataclass(frozen=True, slots=True)
class Committed:
    """Committed data that one task reads; by default nothing.

    It is as of the commit before the batch.
    """

    read_state: ReadState = _no_state
    open_entries: OpenEntries = _nothing_stored
    list_keys: ListKeys = _no_keys


NOTHING_COMMITTED = Committed()


class Effects:
    """Effects of the steps of one level so far.

    ``outputs[sink]`` collects encoded outputs until the host takes them, dead letters among them;
    ``failures`` counts the events that failed without stopping the run; ``states[step name]`` has
    the state objects touched, ``stores[step name]`` the ordered entries.
    """

    def __init__(
        self,
        plan: Plan,
        level: int,
        batch: int,
        sinks: Iterable[int],
        states: dict[str, KeyedState],
        stores: dict[str, StepStore],
    ):
        self.outputs: dict[int, list[bytes]] = {sink: [] for sink in sinks}
        self.failures = _failures(plan, batch, self.outputs)
        self.states = states
        self.stores = stores
        self._plan = plan
        self._level = level

    def due_ns(self) -> tuple[int, int]:
        """Return when the first remaining thing is due, in event and in processing time."""
        times: list[int] = []
        clocks: list[int] = []
        for stage in self._plan.stages:
            if stage.level != self._level:
                continue
            hold_ns = self._plan.holds_ns[stage.id]
            for step in stage.steps:
                store = self.stores.get(step.step_name)
                if store is not None:
                    _note(times, store.due.earliest_ns(), hold_ns)
                    _note(clocks, store.due_processing.earliest_ns())
                    is_timed = step.expires_by_event_time
                    expiries, late_ns = (times, hold_ns) if is_timed else (clocks, 0)
                    _note(expiries, store.expiry.earliest_ns(), late_ns)
                hold_ns += step.holds_ns
        return min(times, default=TIME_MAX), min(clocks, default=TIME_MAX)


def _failures(plan: Plan, batch: int, outputs: dict[int, list[bytes]]) -> Failures:
    sink = plan.dead_letters
    if sink is None:
        return Failures(plan.application, batch, None)
    letters = outputs.setdefault(sink, [])
    return Failures(plan.application, batch, writer_of(plan.sinks[sink].encoder, letters.append))


def open_store(
    step: Step, open_entries: OpenEntries, groups: Groups, packing: Packing
) -> StepStore:
    """Open the ordered entries of a step."""

    def opened(kind: str) -> EntryReader:
        return open_entries(namespace(step.step_name, kind))

    return StepStore(opened, groups, packing.dumps, packing.loads)


def _note(found: list[int], due_ns: int | None, late_ns: int = 0) -> None:
    """Add when something is due by the watermark of sources, unless only the end makes it due."""
    if due_ns is not None:
        found.append(min(due_ns + late_ns, TIME_MAX))
