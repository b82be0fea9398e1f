"""Machine of count windows: by number of events, or timeout.

Invariant: the window of an event is determined by the events of its key before it, in the order of
their arrival, and by the watermark of its partition: an event that arrives, or has a time, after
the timeout of the open window begins the next one, however input was cut into batches. No result is
older than that watermark; at the end of input, than the watermark of all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.steps.windows.entries import AT_END, Slot, in_order
from wallaroo.steps.windows.interface import MachineContext
from wallaroo.steps.windows.spec import CountWindowSpec, Window

# each key's open window: [events, times of the oldest and of the newest, accumulator, due]
OPEN = Slot(AT_END, 0)
Open = list[Any]


class CountMachine:
    """Machine of count windows; see ``interface.Machine``."""

    merge = None  # such windows have no panes

    def __init__(self, spec: CountWindowSpec, context: MachineContext, fired_at: int) -> None:
        self._spec = spec
        self._context = context
        self.process = self._build_process()

    def _build_process(self) -> Callable[[Any, Any], None]:
        now = self._context.now
        failed = self._context.failed
        update = self._context.calls.update
        full = self._spec.count
        open_ = self._context.live.slot(OPEN)
        load = self._load
        fire = self._fire
        forget = self._forget_empty

        def process(key: Any, event: Any) -> None:
            try:
                try:
                    window = open_[key]
                except KeyError:
                    window = load(key)
                due = window[4]
                if now.event_ns >= due or now.watermark_ns >= due:
                    fire(key, window, due, min(due - 1, now.watermark_ns))
                    window = load(key)
                changed = update(event, window[3])
            except BaseException as error:
                forget(key)
                failed(event, error, key)
                return
            if changed is not None:
                window[3] = changed
            window[0] += 1
            if now.event_ns > window[2]:
                window[2] = now.event_ns
            elif now.event_ns < window[1]:
                window[1] = now.event_ns
            if window[0] == full:
                fire(key, window, max(window[2], now.watermark_ns), now.watermark_ns)

        return process

    def _load(self, key: Any) -> Open:
        live = self._context.live
        window = live.get(OPEN, key)
        if window is None:
            now = self._context.now
            time = now.event_ns
            timeout = self._spec.timeout_ns
            due = AT_END if timeout is None else max(time, now.watermark_ns) + timeout
            window = [0, time, time, self._context.calls.initial(), due]
            live.put(OPEN, key, window)
        return window  # type: ignore[no-any-return]  # a list as above

    def _forget_empty(self, key: Any) -> None:
        """Forget the window opened by an event that failed: the next event opens it."""
        live = self._context.live
        window = live.slot(OPEN).get(key)
        if window is not None and not window[0]:
            live.discard(OPEN, key)

    def _fire(self, key: Any, window: Open, time: int, passed: int) -> None:
        self._context.live.discard(OPEN, key)
        if not window[0]:
            return
        bounds = Window(window[1], window[2] + 1)
        self._context.fire(key, window[3], bounds, time, passed)

    def advance(self, watermark: int) -> None:
        """Fire windows with a timeout up to ``watermark``, in order; at the end, all."""
        live = self._context.live
        live.load_due(OPEN, watermark)
        open_ = live.slot(OPEN)
        due = [key for key in in_order(open_) if open_[key][4] <= watermark]
        for key in sorted(due, key=lambda key: open_[key][4]):
            window = open_[key]
            if window[4] == AT_END:
                reached_ns = self._context.reached_ns()
                self._fire(key, window, max(window[2], reached_ns), reached_ns)
            else:
                self._fire(key, window, window[4], window[4] - 1)

    def next_due(self, slot: Slot, value: Any) -> int:
        """Return the time of the open window's timeout."""
        return int(value[4])
