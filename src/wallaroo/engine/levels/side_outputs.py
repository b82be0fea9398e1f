"""Inputs and effects of the steps of one level.

They are the states, ordered entries, outputs and failures of one task of one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from wallaroo.dataflow.plan.model import PANES, Plan, sinks_of
from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.blocks.packing import Packing
from wallaroo.engine.failures.dead_letters import writer_of
from wallaroo.engine.failures.error_context import blame_entries
from wallaroo.engine.failures.policies import Failures
from wallaroo.engine.stages.event_stages import EventStageBuilder
from wallaroo.engine.stores.keyed_state import KeyedState, Read
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.stores.sorted_state import EntryReader, Groups, NothingStored, namespace
from wallaroo.steps.joins.step import Matching
from wallaroo.steps.kinds import Step
from wallaroo.steps.losses import Cell, Loss, Losses
from wallaroo.steps.windows.panes import are_stored_by_pane
from wallaroo.steps.windows.step import WindowStep

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


def _any_name(name: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Committed:
    """Committed data that one task of a batch reads; empty by default."""

    read_state: ReadState = _no_state
    open_entries: OpenEntries = _nothing_stored
    list_keys: ListKeys = _no_keys
    has_name: Callable[[str], bool] = _any_name  # whether the step table has it


NOTHING_COMMITTED = Committed()


class SideOutputs:
    """Effects of the steps of one level so far.

    ``outputs[sink]`` collects encoded outputs until the host takes them, dead letters among them;
    ``failures`` counts events that failed without stopping the run, ``losses`` those without a
    result; ``states[step name]`` has the touched state objects, ``stores[step name]`` the ordered
    entries.
    """

    def __init__(self, plan: Plan, level: int, batch: int):
        self._stages = [stage for stage in plan.stages if stage.level == level]
        self.outputs: dict[int, list[bytes]] = {
            sink: [] for stage in self._stages for sink in sinks_of(stage)
        }
        self.failures = _failures(plan, batch, self.outputs)
        self._lost: dict[tuple[str, str], Cell] = {}
        self.states: dict[str, KeyedState] = {}
        self.stores: dict[str, OperatorState] = {}
        self._plan = plan

    def lost(self, step: Step, loss: Loss) -> Cell:
        """Return the count of a step's events lost for a given reason."""
        return self._lost.setdefault((step.step_name, loss.value), [0])

    @property
    def losses(self) -> Losses:
        """Return the counts that are not 0."""
        return {place: cell[0] for place, cell in self._lost.items() if cell[0]}

    def open(
        self, builder: EventStageBuilder, committed: Committed, groups: Groups, packing: Packing
    ) -> None:
        """Open the states and the ordered entries of a stage's steps."""
        for step in builder.stage.steps:
            name = step.step_name
            if step.is_stateful:
                self.states[name] = builder.state(step, committed.read_state(name))
            if step.keeps_entries:
                self.stores[name] = _open_store(step, committed, groups, packing)

    def take_outputs(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the staged outputs of each sink that has any, and release them."""
        for sink, outputs in self.outputs.items():
            if outputs:
                encoder = self._plan.sinks[sink].encoder
                yield sink, outputs if encoder is None else encoder.pack_all(outputs)
                outputs.clear()

    def release(self) -> None:
        """Release everything that the steps touched, once it is written.

        Operators form reference cycles: without this, garbage collection would visit every object
        of the batch.
        """
        for state in self.states.values():
            state.release()
        for store in self.stores.values():
            store.release()

    def due_ns(self) -> tuple[int, int]:
        """Return when the first remaining thing is due, in event and in processing time."""
        times: list[int] = []
        clocks: list[int] = []
        for stage in self._stages:
            watermark_lag_ns = self._plan.watermark_lags_ns[stage.id]
            for step in stage.steps:
                store = self.stores.get(step.step_name)
                if store is not None:
                    due_ns = (  # panes need no index rows to scan
                        store.due.earliest_ns() if store.panes is None else store.panes.earliest_ns
                    )
                    _note(times, due_ns, watermark_lag_ns)
                    _note(clocks, store.due_processing.earliest_ns())
                    is_timed = step.expires_by_event_time
                    expiries, late_ns = (times, watermark_lag_ns) if is_timed else (clocks, 0)
                    _note(expiries, store.expiry.earliest_ns(), late_ns)
                watermark_lag_ns += step.watermark_lag_ns
        return min(times, default=TIME_MAX), min(clocks, default=TIME_MAX)


def _failures(plan: Plan, batch: int, outputs: dict[int, list[bytes]]) -> Failures:
    sink = plan.dead_letters
    if sink is None:
        return Failures(plan.application, batch, None)
    letters = outputs.setdefault(sink, [])
    return Failures(plan.application, batch, writer_of(plan.sinks[sink].encoder, letters.append))


def _open_store(
    step: Step, committed: Committed, groups: Groups, packing: Packing
) -> OperatorState:
    def opened(kind: str) -> EntryReader:
        return committed.open_entries(namespace(step.step_name, kind))

    name = namespace(step.step_name, PANES)
    has_panes = are_stored_by_pane(step.kept_for) and committed.has_name(name)
    return OperatorState(
        *(opened, groups, packing.dumps, packing.loads),
        has_panes=has_panes,
        has_chunks=isinstance(step, WindowStep | Matching),  # timers are discarded one by one
        unreadable=partial(blame_entries, step),
    )


def _note(found: list[int], due_ns: int | None, late_ns: int = 0) -> None:
    """Add a due time by the sources' watermark, unless due only at the end of input."""
    if due_ns is not None:
        found.append(min(due_ns + late_ns, TIME_MAX))
