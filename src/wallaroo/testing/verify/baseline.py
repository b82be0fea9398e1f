"""Comparison of a run under faults with a run without faults.

It replaces the oracle for applications that have none.

Input comes from files, one message per line, repeatedly.  Output and state must follow from the
input alone: an application whose output depends on the interleaving of sources, on chance or on the
clock differs between runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import Any, ClassVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.testing.verify.cases import Case, State
from wallaroo.testing.verify.trial.result import Faults


class Observed(Case):
    """Results of a run: output lines by key, final state."""

    lines: ClassVar[dict[str, list[bytes]]]  # by source
    key: ClassVar[str] = ""  # a regular expression that finds an output's key; "": there is one key

    def __init__(self, seed: int):
        super().__init__(seed)
        self._input: dict[str, Iterator[bytes]] = {
            source: cycle(lines) for source, lines in self.lines.items()
        }
        self.outputs: dict[bytes, list[bytes]] = {}
        self.states: State = {}

    def payloads(self, source: str, count: int) -> list[bytes]:
        return list(islice(self._input[source], count))

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        finder = re.compile(self.key.encode())
        count = 0
        for line in lines:
            count += 1
            found = finder.search(line) if self.key else None
            self.outputs.setdefault(found.group() if found else b"", []).append(line)
        return count

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        self.states = dict(states)

    def state(self) -> State:
        return self.states

    def facts(self, state: Any) -> Any:
        return state


def compare(found: Observed, undisturbed: Observed, faults: Faults) -> None:
    """Note the differences of a run from the one without faults.

    The order is that of each key.  Raises WallarooParameterError if no line has a key.
    """
    if found.key and not any(found.outputs.keys() | undisturbed.outputs.keys()):
        lines = undisturbed.outputs.get(b"", [])
        if lines:
            what = f"{found.key!r} finds no key in {len(lines)} output lines such as {lines[0]!r}."
            raise WallarooParameterError(Problem("--key", "", what, "Correct the pattern."))
    for key in sorted(found.outputs.keys() | undisturbed.outputs.keys()):
        _compare_key(key, found.outputs.get(key, []), undisturbed.outputs.get(key, []), faults)
        if faults.total == 0 and key and found.outputs[key] != undisturbed.outputs[key]:
            faults.note("out_of_order", f"outputs of {key!r}")
    for name in found.states.keys() | undisturbed.states.keys():
        came = found.states.get(name)
        expected = undisturbed.states.get(name)
        if not _is_same(came, expected):
            faults.note("wrong_state", f"{name!r} is {_shown(came)}, must be {_shown(expected)}")


def _compare_key(key: bytes, found: list[bytes], expected: list[bytes], faults: Faults) -> None:
    came = Counter(found)
    wanted = Counter(expected)
    for line, count in (wanted - came).items():
        faults.note("lost", f"{line!r} of {key!r}", count)
    for line, count in (came - wanted).items():
        faults.note("duplicated" if line in wanted else "wrong", f"{line!r} of {key!r}", count)


def _is_same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one == other) or _shown(one) == _shown(other)


def _shown(state: Any) -> str:
    """Return the content of a state object, even if its class compares by identity."""
    if hasattr(state, "__dict__"):
        fields = ", ".join(f"{name}={_shown(value)}" for name, value in vars(state).items())
        return f"{type(state).__name__}({fields})"
    if isinstance(state, (list, tuple)):
        return f"{type(state).__name__}({', '.join(map(_shown, state))})"
    if isinstance(state, dict):
        return f"{{{', '.join(f'{key!r}: {_shown(value)}' for key, value in state.items())}}}"
    return repr(state)
