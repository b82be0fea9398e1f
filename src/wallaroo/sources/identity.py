"""The identity of a source's system: facts that positions carry.

Where it runs: everywhere; pure.

The invariant: offsets are meaningful only in the log that assigned them. So a position carries that
log's facts, which are compared; one without them, from an earlier version, adopts the present ones.
A text must stay the same, a number may only grow.
"""

from __future__ import annotations

from collections.abc import Mapping

Facts = Mapping[str, str | int]


def changed(known: Facts, present: Facts) -> str:
    """Describe the first fact that reveals another log; empty if there is none.

    Facts that are unknown on one side are not compared.

    >>> changed({"system identifier": "7", "newest number": 80}, {"newest number": 81})
    ''
    >>> changed({"newest number": 80}, {"system identifier": "7", "newest number": 3})
    'its newest number is 3 and was 80'
    """
    for name, value in known.items():
        now = present.get(name, value)
        if isinstance(value, int) and isinstance(now, int):
            is_same = now >= value
        else:
            is_same = now == value
        if not is_same:
            return f"its {name} is {now} and was {value}"
    return ""
