"""Sums independent of how their values are divided among tasks.

Invariants:

* Integers are summed separately, so they may be added in any order.
* Other values, such as floats, are added in order of arrival: a partial sum holds them one by one.
  So a sum is the same to the last digit, whether computed before or after a shuffle.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class MixedSum(NamedTuple):
    """A sum of whole numbers, not 0, beside a sum of others.

    An application's own ``serialize`` may turn it into a list or a tuple.
    """

    whole: int
    rest: Any


_MIXED = (MixedSum, list, tuple)
_EXACT_BITS = 62  # whole numbers up to here can be added to any other number


def plus(total: Any, value: Any) -> Any:
    """Return a sum and another value.

    >>> plus(plus(plus(0, 0.5), 2), 0.25)
    MixedSum(whole=2, rest=0.75)
    """
    value = 0 + value  # bool becomes int; anything but a number raises TypeError
    whole, rest = _parts(total)
    if type(value) is int:
        return _of(whole + value, rest)
    return _of(whole, value if rest is None else rest + value)


def joined(left: Any, right: Any) -> Any:
    """Return the sum of both parts' values, ``left`` the earlier ones."""
    if type(left) is type(right) and type(left) not in _MIXED:
        return left + right
    whole, rest = _parts(right)
    total = plus(left, whole)
    return total if rest is None else plus(total, rest)


def total_of(total: Any) -> Any:
    """Return a sum as one number."""
    if type(total) in _MIXED:
        whole, rest = total
        return whole + rest
    return total


def _parts(total: Any) -> tuple[int, Any]:
    if type(total) in _MIXED:
        whole, rest = total
        return whole, rest
    return (total, None) if type(total) is int else (0, total)


def _of(whole: int, rest: Any) -> Any:
    if rest is None:
        return whole
    _check(whole, rest)
    return MixedSum(whole, rest) if whole else rest


def _check(whole: int, rest: Any) -> None:
    """Raise the error of their sum here, while the offending value is known."""
    if whole.bit_length() > _EXACT_BITS:
        whole + rest


# --- before a shuffle ---

# an int while all values are integers, then a list: their sum, and the other values
PartialSum = Any


def noted(partial: PartialSum, value: Any) -> PartialSum:
    """Return a partial sum and another value.

    >>> noted(noted(noted(0, 2), 0.5), 1)
    [3, 0.5]
    """
    value = 0 + value
    if type(partial) is int:
        if type(value) is int:
            return partial + value
        _check(partial, value)
        return [partial, value]
    if type(value) is int:
        _check(partial[0] + value, partial[-1])
        partial[0] += value
        return partial
    last = partial[-1]
    if type(value) is not type(last):
        last + value  # raises if they cannot be added: here the event is known
    partial.append(value)
    return partial


def absorbed(total: Any, partial: PartialSum) -> Any:
    """Return a sum and the values of a partial one, or those of another sum.

    >>> absorbed(1, [3, 0.5, 0.25])
    MixedSum(whole=4, rest=0.75)
    """
    if type(partial) is not list:
        return joined(total, partial)
    whole, *values = partial
    total = plus(total, whole)
    for value in values:
        total = total + value if type(total) is type(value) else plus(total, value)
    return total
