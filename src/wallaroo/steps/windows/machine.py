"""Machines by specification."""

from __future__ import annotations

from typing import Any

from wallaroo.steps.windows.count_machine import CountMachine
from wallaroo.steps.windows.interface import Machine, MachineContext
from wallaroo.steps.windows.range_machine import RangeMachine
from wallaroo.steps.windows.session_machine import SessionMachine
from wallaroo.steps.windows.spec import (
    CountWindowSpec,
    RangeWindowSpec,
    SessionWindowSpec,
    WindowSpec,
)

MACHINES: dict[type[Any], Any] = {
    RangeWindowSpec: RangeMachine,
    CountWindowSpec: CountMachine,
    SessionWindowSpec: SessionMachine,
}


def machine_of(spec: WindowSpec, context: MachineContext, fired_at: int) -> Machine:
    """Build the machine for a specification; windows due at ``fired_at`` have fired already."""
    machine: Machine = MACHINES[type(spec)](spec, context, fired_at)
    return machine
