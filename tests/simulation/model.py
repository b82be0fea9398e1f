"""What must come out: a model of the application that shares no code with the product.

Where it runs: pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def answers(payloads: Iterable[bytes]) -> dict[str, list[str]]:
    """Return the lines of each key, in order, for events in order."""
    counts: dict[str, int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    lines: dict[str, list[str]] = defaultdict(list)
    for payload in payloads:
        key, value = payload.decode().split(" ")
        counts[key] += 1
        sums[key] += int(value)
        lines[key].append(f"{key} {value} {counts[key]} {sums[key]}")
    return dict(lines)


def by_key(output: bytes) -> dict[str, list[str]]:
    """Sort what came out by key, keeping the order."""
    lines: dict[str, list[str]] = defaultdict(list)
    for line in output.decode().split("\n")[:-1]:
        lines[line.split(" ")[0]].append(line)
    return dict(lines)


def difference(expected: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    """Say how the output differs; empty if it does not."""
    for key in sorted(expected.keys() | found.keys()):
        wanted, came = expected.get(key, []), found.get(key, [])
        if wanted != came:
            at = next(
                (n for n, (a, b) in enumerate(zip(wanted, came, strict=False)) if a != b),
                min(len(wanted), len(came)),
            )
            return (
                f"key {key}: {len(came)} lines instead of {len(wanted)}; line {at} is "
                f"{came[at : at + 2]} instead of {wanted[at : at + 2]}"
            )
    return ""


def problem_of_prefix(expected: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    """Say what is wrong with output that may not be complete yet; empty if nothing is."""
    for key, came in sorted(found.items()):
        wanted = expected.get(key, [])
        if came != wanted[: len(came)]:
            return f"key {key}: {came[-3:]} is not how its output begins"
    return ""
