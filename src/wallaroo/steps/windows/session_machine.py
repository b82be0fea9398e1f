"""Machine of session windows: a key's events closer than a gap.

Invariant: an event is late if it is older than the watermark of its partition before it, less the
delay.  A session fires once the watermark has passed its end plus the delay, so only late events
could touch it afterwards: sessions depend only on the events that are not late, whatever their
order and batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import itemgetter
from typing import Any

from wallaroo.steps.windows.entries import AT_END, Slot, in_order
from wallaroo.steps.windows.interface import LateEvent, MachineContext, counted_late
from wallaroo.steps.windows.spec import DROP, Firing, SessionWindowSpec, Window

# each key's open sessions: [start, time of the last event, accumulator], in order
OPEN = Slot(AT_END, 0)
Session = list[Any]


class SessionMachine:
    """Machine of session windows; see ``interface.Machine``."""

    merge = None  # such windows have no panes

    def __init__(self, spec: SessionWindowSpec, context: MachineContext, fired_at: int) -> None:
        self._spec = spec
        self._context = context
        self._late = context.late_policy(spec.policy, self._why, self._alone)
        self.process = self._build_process()

    def _build_process(self) -> Callable[[Any, Any], None]:
        now = self._context.now
        failed = self._context.failed
        late = self._late
        is_dropped = self._context.late is None and self._spec.policy == DROP
        count_late = counted_late(now, self._context.lost, is_dropped=is_dropped)
        update = self._context.calls.update
        gap = self._spec.gap_ns
        delay = self._spec.delay_ns
        open_ = self._context.live.slot(OPEN)
        load = self._load
        add = self._add

        def process(key: Any, event: Any) -> None:
            time = now.event_ns
            if time < now.watermark_ns - delay:
                count_late()
                late(key, event, time)
                return
            try:
                try:
                    sessions = open_[key]
                except KeyError:
                    sessions = load(key)
                session = sessions[-1] if len(sessions) == 1 else None
                if session is None or not session[0] <= time < session[1] + gap:
                    add(key, sessions, event, time)
                    return
                changed = update(event, session[2])
            except BaseException as error:
                failed(event, error, key)
                return
            if time > session[1]:
                session[1] = time
            if changed is not None:
                session[2] = changed

        return process

    def _load(self, key: Any) -> list[Session]:
        return self._context.live.get(OPEN, key) or []

    def _add(self, key: Any, sessions: list[Session], event: Any, time: int) -> None:
        """Add an event to its sessions, merging them, or open one.

        If it fails, all of them stay as they are.
        """
        gap = self._spec.gap_ns
        calls = self._context.calls
        if not sessions:
            accumulator = calls.initial()
            changed = calls.update(event, accumulator)
            whole = accumulator if changed is None else changed
            self._context.live.put(OPEN, key, [[time, time, whole]])
            return
        touched = [each for each in sessions if each[0] < time + gap and time < each[1] + gap]
        if len(touched) == 1:
            (session,) = touched
        else:
            parts = [each[2] for each in touched] or [calls.initial()]
            session = [time, time, reduce(calls.absorb, parts)]
        changed = calls.update(event, session[2])
        if changed is not None:
            session[2] = changed
        session[0] = min(session[0], time)
        session[1] = max(session[1], time)
        if len(touched) == 1:
            return
        for each in touched:
            session[0] = min(session[0], each[0])
            session[1] = max(session[1], each[1])
        others = [each for each in sessions if each not in touched]
        ordered = sorted([*others, session], key=itemgetter(0))
        self._context.live.put(OPEN, key, ordered)

    # --- late events ---

    def _why(self, time: int) -> LateEvent:
        late = self._context.now.watermark_ns - self._spec.delay_ns - time
        return LateEvent(f"it came {late / 1e9:.3f} s too late for its session")

    def _alone(self, time: int) -> Window:
        return Window(time, time + self._spec.gap_ns, Firing.LATE)

    # --- firing ---

    def advance(self, watermark: int) -> None:
        """Fire the sessions that end at or before ``watermark`` less the delay, in order."""
        live = self._context.live
        span = self._spec.gap_ns + self._spec.delay_ns
        live.load_due(OPEN, watermark)
        open_ = live.slot(OPEN)
        fired: list[tuple[int, int, Any, Session]] = []
        for key in in_order(open_):
            for session in open_[key]:
                if session[1] + span <= watermark:
                    fired.append((session[1] + span, len(fired), key, session))
        for _, _, key, session in sorted(fired, key=lambda each: each[:2]):
            self._fire(key, session)
            open_[key].remove(session)
        for key in [key for key, sessions in open_.items() if not sessions]:
            live.discard(OPEN, key)

    def _fire(self, key: Any, session: Session) -> None:
        window = Window(session[0], session[1] + self._spec.gap_ns)
        passed = window.end + self._spec.delay_ns - 1
        self._context.fire(key, session[2], window, window.end - 1, passed)

    def next_due(self, slot: Slot, value: Any) -> int:
        """Return when the first session of a key ends."""
        span = self._spec.gap_ns + self._spec.delay_ns
        return min(int(session[1]) + span for session in value)
