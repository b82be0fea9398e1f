"""Time of a stage as seen by its operators."""

from __future__ import annotations

from typing import Any

from wallaroo.engine.blocks.ordered_keys import TIME_MAX, TIME_MIN


class StageTime:
    """The current time of a stage, unix time in nanoseconds.

    While an event is processed: ``event_ns`` is the event's time, ``watermark_ns`` the watermark of
    its source partition just before it.  An event is late for every window that ended at or before
    that watermark: this alone decides lateness, since it does not depend on how input was divided
    into batches.

    While ``Operator.advance`` runs, ``watermark_ns`` is the stage's watermark.  An operator calls
    ``fire_at`` before it emits what was due.

    ``clock_ns`` is the batch's one reading of the clock; a repeated batch has the same one, and the
    same number, ``batch``.
    """

    __slots__ = (
        "batch",
        "began_ns",
        "clock_ns",
        "elapsed_ns",
        "event_ns",
        "latest_ns",
        "passed_ns",
        "payload",
        "reached_ns",
        "receipt_ns",
        "watermark_ns",
    )

    def __init__(
        self, clock_ns: int = 0, began_ns: int = TIME_MIN, batch: int = -1, elapsed_ns: int = 0
    ) -> None:
        self.batch = batch
        self.elapsed_ns = elapsed_ns  # by the clock, since the batch before
        self.began_ns = began_ns  # the stage's watermark when the batch began
        self.reached_ns = TIME_MIN  # the watermark after the batch's input; set once that has ended
        self.event_ns: int = TIME_MIN
        self.watermark_ns: int = TIME_MIN
        self.clock_ns = clock_ns
        # only in a stage that reads a source: the source's watermark so far, and when the current
        # event was received
        self.passed_ns: int = TIME_MIN
        self.receipt_ns: int = TIME_MAX
        # the latest time that such an event may have (``max_ahead``)
        self.latest_ns: int = TIME_MAX
        self.payload: Any = None  # the payload of the event, if payloads are sent

    def fire_at(self, time_ns: int, added_at_ns: int = TIME_MIN) -> None:
        """Set the time of the following events to a due time.

        The watermark is set to just before it.  ``added_at_ns``: ``Due.added_at_ns``.
        """
        self.event_ns = time_ns
        self.watermark_ns = max(time_ns - 1, added_at_ns)


def lagged(watermark_ns: int, watermark_lag_ns: int) -> int:
    """Return a delayed watermark, unless nothing was observed yet, or input has ended."""
    if watermark_ns in (TIME_MIN, TIME_MAX):
        return watermark_ns
    return watermark_ns - watermark_lag_ns
