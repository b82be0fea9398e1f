"""FunctionSinkConfig: outputs handed to a user's function, at least once, in order.

Where it runs: the configuration is pickled; writers run in workers, the committer and the function
in the driver, in a thread of the sink's own.

The invariants are those of ``sinks/queued/at_least_once.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from wallaroo.errors import PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.at_least_once import Progress, Slice, SlicedSession, SlicedSystem
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.queued.system import ENDLESS_S
from wallaroo.steps.kinds import Encoder, place_of


class CallError(Exception):
    """A failed call; ``args`` hold the type and text of its exception."""

    def __str__(self) -> str:
        return ": ".join(filter(None, map(str, self.args)))


class FunctionSession(SlicedSession):
    """A session that calls the function with a batch's outputs, by slices."""

    def __init__(self, config: FunctionSinkConfig, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, config.batch)
        self._function = config.function

    def deliver(self, part: Slice) -> None:
        """Call the function.  Raises CallError if the function raises."""
        fault_point("function.call")
        try:
            self._function(list(part.outputs))
        except Exception as error:  # the user's function may raise anything
            raise CallError(type(error).__name__, str(error)) from error
        fault_point("function.called")


class FunctionSystem(SlicedSystem["FunctionSinkConfig"]):
    """A function, and the retries of its calls."""

    session = FunctionSession
    errors: ClassVar[tuple[type[Exception], ...]] = (CallError,)
    stalled_s = ENDLESS_S  # a function may take as long as it likes

    @property
    def target(self) -> str:
        return self._config.label

    def waiting_for(self, error: Exception) -> str:
        return self.retry_text(self.target, error, self._config.retries, self.pause_s(error))

    def pause_s(self, error: Exception) -> float:
        return self._progress.pause_s(self._config.backoff_s)

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        which = f" with outputs of batch {batch.batch}" if batch else ""
        place = place_of(self._config.function)
        at = f" at {place}" if place else ""
        return PeerError(
            f"Function '{self._config.target}'{at} of sink '{self._context.sink}' failed "
            f"{self._progress.failures} times in a row{which}, the last time with {error}. Nothing "
            f"is lost: committed outputs wait in {self._context.staging}. Correct the function or "
            f"what it calls, then run again."
        )


def _runs_in_the_driver(outputs: list[bytes]) -> None:
    raise AssertionError("the function of a sink runs in the driver only")


@dataclass(frozen=True, slots=True)
class FunctionSinkConfig(QueuedSinkConfig):
    """A sink that calls a function with lists of encoded outputs.

    ``function`` gets them (bytes) in order, each at least once.  It runs in the driver, one call at
    a time, with at most ``batch`` outputs; its result is ignored.  When it raises, it is called
    again with the same outputs, after ``backoff_s``, then twice as long, up to 30 s; after
    ``retries`` of them in a row the run ends, and the next one continues with the waiting outputs
    (``None``: it is retried without end).  After a crash the outputs of the current batch may be
    passed again: make the function idempotent, or let it recognise duplicates.

    ``name`` names the sink in errors and tables; by default it is the function's own name, which
    also identifies a sink without a name.
    """

    kind: ClassVar[str] = "function"
    system: ClassVar[str] = "wallaroo.connectors.function.sink:FunctionSystem"

    function: Callable[[list[bytes]], object]
    encoder: Encoder[Any] | None = None
    name: str = ""
    batch: int = 1000
    retries: int | None = 8
    backoff_s: float = 0.25

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise self._wrong(f"{self.function!r} is not a function.", "Give a function of a list.")
        if not isinstance(self.batch, int) or self.batch < 1:
            raise self._wrong(f"batch={self.batch!r} outputs cannot be given.", "Give 1 or more.")
        if self.retries is not None and (not isinstance(self.retries, int) or self.retries < 0):
            raise self._wrong(
                f"retries={self.retries!r} is not a number.", "Give 0 or more, or None."
            )
        if not isinstance(self.backoff_s, int | float) or not 0 <= self.backoff_s < float("inf"):
            raise self._wrong(
                f"backoff_s={self.backoff_s!r} is not a time.", "Give seconds, 0 or more."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the function: workers stage outputs, and need not be able to import it."""
        rest = (self.encoder, self.target, self.batch, self.retries, self.backoff_s)
        return FunctionSinkConfig, (_runs_in_the_driver, *rest)

    @property
    def target(self) -> str:
        """Return the name, or the function's own."""
        return self.name or getattr(self.function, "__name__", type(self.function).__name__)
