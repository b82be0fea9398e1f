"""The windowed case: out-of-order values, and each window's expected content.

Where it runs: the verifier.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar

from tests.verification.applications.windows import DELAY_MS, EVENT, RANGE_MS, SLIDE_MS
from tests.verification.event_input import BEGIN_MS, KEYS, STEP_MS
from wallaroo.testing.verify.cases import Case, State
from wallaroo.testing.verify.trial.result import Faults


class Windows(Case):
    """Consecutive numbers per key in windows of event time.

    Values are 1, 2, 3, ...  Every window that the input's watermark has passed is output once, in
    order per key, with exactly its values: an independent loop over the input assigns them to
    windows.
    """

    module: ClassVar[str] = "tests.verification.applications.windows"
    sources: ClassVar[tuple[str, ...]] = ("Values",)
    _LINE = re.compile(rb"(\d+) (\d+) (\[[\d, ]+\])")

    def __init__(self, seed: int):
        super().__init__(seed)
        self._counts: Counter[int] = Counter()
        self._made = 0
        self._newest_ms = 0
        # (key, begin of the window in ms) -> its values
        self._windows: dict[tuple[int, int], list[int]] = defaultdict(list)

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        made = []
        for _ in range(count):
            key = int(KEYS * chance.random() ** 2)
            self._counts[key] += 1
            self._made += 1
            at_ms = BEGIN_MS + self._made * STEP_MS - chance.randrange(DELAY_MS)
            self._newest_ms = max(self._newest_ms, at_ms)
            last = at_ms // SLIDE_MS * SLIDE_MS
            for begin in range(last - RANGE_MS + SLIDE_MS, last + 1, SLIDE_MS):
                self._windows[key, begin].append(self._counts[key])
            made.append(EVENT.pack(key, self._counts[key], at_ms))
        return made

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        count = 0
        seen: set[tuple[int, int]] = set()
        newest: dict[int, int] = {}
        for line in lines:
            count += 1
            found = self._LINE.fullmatch(line)
            if found is None:
                faults.note("wrong", repr(line))
                continue
            place = int(found[1]), int(found[2])
            if place in seen:
                faults.note("duplicated", repr(line))
            elif sorted(self._windows.get(place, [])) != ast.literal_eval(found[3].decode()):
                faults.note("wrong", repr(line))
            elif newest.get(place[0], 0) > place[1]:
                faults.note("out_of_order", repr(line))
            seen.add(place)
            newest[place[0]] = max(newest.get(place[0], 0), place[1])
        passed = self._newest_ms - DELAY_MS
        for key, begin in sorted(self._windows):
            is_due = begin + RANGE_MS <= passed
            if is_due and (key, begin) not in seen:
                faults.note("lost", f"key {key}, window {begin}")
            elif not is_due and (key, begin) in seen:
                faults.note("wrong", f"key {key}, window {begin} came too early")
        return count

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Accept any state: windows that have not fired are judged when they do."""

    def state(self) -> State:
        return {}

    def facts(self, state: Any) -> Any:
        return None
