"""What to verify, and how hard.

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
    """What to verify, how hard."""

    case: str = "sequence"
    kills: int = 20
    seed: int = 1
    seconds: float = float("inf")  # no kill after this time
    rate: float = 2000.0  # events per second and source
    kinds: tuple[Kind, ...] = tuple(Kind)
    deeds: tuple[Deed, ...] = (Deed.KILL,)
    together: int = 1  # so many at once
    is_enough: Callable[[], bool] = lambda: False  # whether nothing more is to be done
    own: type[Case] | None = None  # a user's oracle, for an application that is not in CASES
    is_plain: bool = False  # whether the receiver is a plain TCP one, which cannot say what it has
    # fault points, such as commit.before:3: the first starts of the run kill themselves there
    faults: tuple[str, ...] = ()
    host: str = "127.0.0.1"  # where senders reach the run
    # of each source: so many events, where that is not up to the disturbances
    events: tuple[tuple[str, int], ...] = ()
    run_options: tuple[str, ...] = ("--master", "local[2]", "--batch-time", "0.5")
    latency: str = "normal"
    program: tuple[str, ...] = ("wallaroo", "run")  # the module that runs it, and what comes first
