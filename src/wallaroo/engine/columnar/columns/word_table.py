"""Columns of fixed width as words, and a hash table of them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def words_of(column: Array) -> list[Array]:
    """Return the bytes of a column of fixed width as columns of 8 bytes, padded at the end."""
    width = column.dtype.itemsize
    words = []
    for at in range(0, width, 8):
        word: Array | None = None
        shift = 0
        for size in (8, 4, 2, 1):
            if at + shift // 8 + size <= min(width, at + 8):
                piece = column.getfield(np.dtype(f"u{size}"), at + shift // 8).astype(np.uint64)
                word = piece if word is None else word | (piece << np.uint64(shift))
                shift += 8 * size
        assert word is not None
        words.append(word)
    return words


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: Fibonacci hashing
_HALF = np.uint64(32)
_SLOTS_MIN = 1024
_FILL_MAX = 4  # slots per key at least: most keys are found at once


class WordTable:
    """Linear-probing hash table from fixed-size word keys to numbers, for many rows."""

    __slots__ = ("_codes", "_count", "_shift", "_words")

    def __init__(self, width: int):
        self._count = 0
        self._words: list[Array] = [np.zeros(_SLOTS_MIN, np.uint64) for _ in range(width)]
        self._codes = np.full(_SLOTS_MIN, -1, np.intp)
        self._shift = np.uint64(64 - _SLOTS_MIN.bit_length() + 1)

    def find(self, words: list[Array]) -> Array:
        """Return a number for each row, -1 for keys that are absent."""
        slots = self._slots(words)
        codes = self._codes[slots]
        rest = np.flatnonzero(~self._are_at(slots, words) & (codes >= 0))
        last = len(self._codes) - 1
        slots = slots[rest]
        while len(rest):
            slots = (slots + 1) & last
            here = self._codes[slots]
            codes[rest] = here
            goes_on = ~self._are_at(slots, [word[rest] for word in words]) & (here >= 0)
            rest = rest[goes_on]
            slots = slots[goes_on]
        return codes

    def add(self, words: list[Array], codes: Array) -> None:
        """Insert distinct keys that are absent."""
        self._count += len(codes)
        size = len(self._codes)
        if self._count * _FILL_MAX > size:
            while self._count * _FILL_MAX > size:
                size *= 2
            self._resize(size)
        self._put(words, codes)

    def _put(self, words: list[Array], codes: Array) -> None:
        slots = self._slots(words)
        rest = np.arange(len(codes))
        last = len(self._codes) - 1
        while len(rest):
            free = np.flatnonzero(self._codes[slots[rest]] < 0)
            _, first = np.unique(slots[rest[free]], return_index=True)
            placed = rest[free[first]]
            for own, word in zip(self._words, words, strict=True):
                own[slots[placed]] = word[placed]
            self._codes[slots[placed]] = codes[placed]
            is_placed = np.zeros(len(codes), bool)
            is_placed[placed] = True
            rest = rest[~is_placed[rest]]
            slots[rest] = (slots[rest] + 1) & last

    def _resize(self, size: int) -> None:
        used = np.flatnonzero(self._codes >= 0)
        words = [word[used] for word in self._words]
        codes = self._codes[used]
        self._words = [np.zeros(size, np.uint64) for _ in words]
        self._codes = np.full(size, -1, np.intp)
        self._shift = np.uint64(64 - size.bit_length() + 1)
        self._put(words, codes)

    def _slots(self, words: list[Array]) -> Array:
        mixed = words[0] * _MULTIPLIER
        for word in words[1:]:
            mixed = ((mixed ^ (mixed >> _HALF)) + word) * _MULTIPLIER
        return (mixed >> self._shift).astype(np.intp)

    def _are_at(self, slots: Array, words: list[Array]) -> Array:
        equal: Array = self._words[0][slots] == words[0]
        for own, word in zip(self._words[1:], words[1:], strict=True):
            equal &= own[slots] == word
        return equal
