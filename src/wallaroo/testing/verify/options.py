"""Options of a verification.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wallaroo.options import HostKind
from wallaroo.testing.verify.cases import Case
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.schedule import Fault


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Case, load and disturbances of a verification."""

    name: str
    case: type[Case]
    kills: int = 20
    seed: int = 1
    seconds: float = float("inf")  # no kill after this time
    rate: float = 2000.0  # events per second and source
    kinds: tuple[Kind, ...] = tuple(Kind)
    injected: tuple[Fault, ...] = (Fault.KILL,)
    together: int = 1  # number of simultaneous faults
    is_enough: Callable[[], bool] = lambda: False  # whether to end the disturbances
    is_plain: bool = False  # whether the receiver is plain TCP, which cannot report what it has
    # such as commit.before:3: the first starts of the run kill themselves there
    fault_points: tuple[str, ...] = ()
    address: str = "127.0.0.1"  # where senders reach the run
    # number of events by source, unless the disturbances determine it
    events: tuple[tuple[str, int], ...] = ()
    checkpoint: str = ""  # a URL; "": a folder of the verification's own
    run_options: tuple[str, ...] = ("--master", "local[2]", "--batch-time", "0.5")
    host: HostKind | None = HostKind.RESIDENT  # None: no Spark
    latency_ms: float | None = None  # the target; None: the host's own
    program: tuple[str, ...] = ("wallaroo", "run")  # the module that runs it, and first arguments
