"""Options of a verification.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wallaroo.verify.cases import Case
from wallaroo.verify.disturbances.schedule import Deed
from wallaroo.verify.processes import Kind


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Case, load and disturbances of a verification."""

    case: str = "sequence"
    kills: int = 20
    seed: int = 1
    seconds: float = float("inf")  # no kill after this time
    rate: float = 2000.0  # events per second and source
    kinds: tuple[Kind, ...] = tuple(Kind)
    deeds: tuple[Deed, ...] = (Deed.KILL,)
    together: int = 1  # number of simultaneous deeds
    is_enough: Callable[[], bool] = lambda: False  # whether to end the disturbances
    own: type[Case] | None = None  # a user's oracle, for an application that is not in CASES
    is_plain: bool = False  # whether the receiver is plain TCP, which cannot report what it has
    # fault points, such as commit.before:3: the first starts of the run kill themselves there
    faults: tuple[str, ...] = ()
    host: str = "127.0.0.1"  # where senders reach the run
    # number of events by source, unless the disturbances determine it
    events: tuple[tuple[str, int], ...] = ()
    run_options: tuple[str, ...] = ("--master", "local[2]", "--batch-time", "0.5")
    latency: str = "normal"
    program: tuple[str, ...] = ("wallaroo", "run")  # the module that runs it, and what comes first
