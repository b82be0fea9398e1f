"""The loop of a run over batches, until its end or error.

Where it runs: driver, in a thread of its own (`BatchLoop.start`), or in the thread of a host that
requests each batch (`BatchLoop.step`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from wallaroo.durable.disk_errors import unexpected_error
from wallaroo.errors import WallarooError
from wallaroo.runtime.batch.admission import Ends
from wallaroo.runtime.batch.batches import Batches
from wallaroo.runtime.batch.trigger import Trigger


def explain(error: BaseException) -> WallarooError:
    """Return the error that ended a loop, in the user's words."""
    return error if isinstance(error, WallarooError) else unexpected_error("a batch failed", error)


class BatchLoop:
    """The loop of a run's batches, and the error that ended it.

    ``run`` runs a batch up to its ends; the default is ``Batches.run``.  ``explain`` returns an
    error in the user's words.
    """

    def __init__(
        self,
        trigger: Trigger,
        batches: Batches,
        run: Callable[[Ends], object] | None = None,
        explain: Callable[[BaseException], WallarooError] = explain,
    ):
        self._trigger = trigger
        self._batches = batches
        self._run_batch = run or batches.run
        self._explain = explain
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def step(self) -> bool:
        """Wait for the next batch and run it; return False if there is no next one.

        The last commit is then settled.  An error is kept for `poll`, and raised.
        """
        try:
            ends = self._trigger.next(self._batches)
            if ends is not None:
                self._run_batch(ends)
            else:
                self._batches.settle()
        except BaseException as error:
            self.fail(error)
            raise
        return ends is not None

    def start(self, name: str) -> None:
        """Run all batches in a thread."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self.step():
                pass
        except BaseException:  # noqa: BLE001  # `poll` raises it in the thread of the run
            pass

    def fail(self, error: BaseException) -> None:
        """Keep an error for `poll`."""
        self._failure = error

    def poll(self) -> None:
        """Raise the error that ended the loop, if any."""
        if self._failure is not None:
            raise self._explain(self._failure)

    def finish(self, seconds: float) -> bool:
        """End the loop after the current batch; return whether that ended in time.

        Raises the error that ended the loop, if any.
        """
        self._trigger.end()
        has_ended = self.join(seconds)
        self.poll()
        return has_ended

    def join(self, seconds: float) -> bool:
        """Wait for the loop's thread, if there is one; return whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()
