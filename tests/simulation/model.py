"""What must come out: models of the applications that share no code with the product.

Where it runs: pure.

A model gets the messages of each source in order, and returns the lines of each key in order.  Of
the timed applications the last message of a source is only there to let time pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

# milliseconds
DELAY = 40  # events are less than this out of order
STEP = 10  # from one event of a source to the next, on average
RANGE, SLIDE = 60, 20  # of windows
GAP = 35  # from an event to its timer

Lines = dict[str, list[str]]


def answers(*sources: Sequence[bytes]) -> Lines:
    """Running totals; no key comes from two sources."""
    counts: dict[str, int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    lines: dict[str, list[str]] = defaultdict(list)
    for payload in (one for payloads in sources for one in payloads):
        key, value = payload.decode().split(" ")
        counts[key] += 1
        sums[key] += int(value)
        lines[key].append(f"{key} {value} {counts[key]} {sums[key]}")
    return dict(lines)


def windows(*sources: Sequence[bytes]) -> Lines:
    """Sliding windows: each with all of its values, in order of their beginnings."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, value, at in _timed(sources):
        for start in range(at - at % SLIDE - RANGE + SLIDE, at + 1, SLIDE):
            found[key, start].append(value)
    return _by_first_word(
        f"{key} {start} {sorted(found[key, start])}" for key, start in sorted(found)
    )


def timers(*sources: Sequence[bytes]) -> Lines:
    """One line per event, in order of the events' times."""
    events = sorted(_timed(sources), key=lambda event: event[2])
    return _by_first_word(f"{key} {value} {at}" for key, value, at in events)


def join(*sources: Sequence[bytes]) -> Lines:
    """Each event of the first source with the newest one of the second that is not after it."""
    left, right = (sorted(_timed([one]), key=lambda event: event[2]) for one in sources)
    lines = []
    for key, value, at in left:
        before = [number for other, number, time in right if other == key and time <= at]
        lines.append(f"{key} {value} {at} {before[-1] if before else '-'}")
    return _by_first_word(lines)


def _timed(sources: Iterable[Sequence[bytes]]) -> list[tuple[str, int, int]]:
    split = [one.decode().split(" ") for payloads in sources for one in payloads[:-1]]
    return [(key, int(value), int(at)) for key, value, at in split]


def _by_first_word(lines: Iterable[str]) -> Lines:
    found: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        found[line.split(" ")[0]].append(line)
    return dict(found)


def by_key(output: bytes) -> Lines:
    """Sort what came out by key, keeping the order."""
    return _by_first_word(output.decode().split("\n")[:-1])


def difference(expected: Lines, found: Lines) -> str:
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


def problem_of_prefix(expected: Lines, found: Lines) -> str:
    """Say what is wrong with output that may not be complete yet; empty if nothing is."""
    for key, came in sorted(found.items()):
        wanted = expected.get(key, [])
        if came != wanted[: len(came)]:
            return f"key {key}: {came[-3:]} is not how its output begins"
    return ""
