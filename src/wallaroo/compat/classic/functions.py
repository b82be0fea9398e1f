"""Functions that the steps of a classic application call.

Where it runs: workers.  Events are ``(pipeline, data)``, with a key as third before a state step:
pipelines that share a state run as one stream, and each step acts on its own pipelines' events.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

Key = str | bytes | int
Event = tuple[Any, ...]
Act = Callable[[Any], list[Any]]


class ClassicState:
    """Holder of a state in older checkpoints; today's have the state itself."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    def __repr__(self) -> str:
        return repr(self.value)


def tagged(pipeline: int) -> Callable[[Any], Event]:
    """Return the function that tags each event of a source with its pipeline."""

    def enter(data: Any) -> Event:
        return pipeline, data

    return enter


def stateless(pipeline: int, computation: Any) -> Callable[[Event], list[Event]]:
    """Return the function that runs a computation on its pipeline's events."""
    act = _act(computation)

    def compute(event: Event) -> list[Event]:
        if event[0] != pipeline:
            return [event]
        return [(pipeline, output) for output in act(event[1]) if output is not None]

    return compute


def _act(computation: Any) -> Act:
    if hasattr(computation, "compute_multi"):
        return lambda data: computation.compute_multi(data) or []
    return lambda data: [computation.compute(data)]


def plain_key(key: Hashable) -> Key:
    """Return a partition key as a current key; any other object is named by its repr."""
    if isinstance(key, str | bytes | int):
        return key
    if type(key).__repr__ is object.__repr__:
        raise TypeError(
            f"the partition function returned a {type(key).__name__}, whose repr() is its address; "
            "define __repr__ so that equal keys have equal ones, or list the partition keys"
        )
    return repr(key)


def listed_keys(keys: Iterable[Hashable]) -> dict[Hashable, Key]:
    """Return partition keys with the current keys in their places."""
    return {key: _listed_key(key) for key in keys}


def _listed_key(key: Hashable) -> Key:
    if type(key).__repr__ is not object.__repr__:
        return plain_key(key)
    return f"{type(key).__name__} {blake2b(pickle.dumps(key, 5), digest_size=8).hexdigest()}"


def keyed(
    partitions: Mapping[int, Callable[[Any], Any]], listed: Mapping[Hashable, Key] | None
) -> Callable[[Event], Event | None]:
    """Return the function that determines an event's key.

    An event whose key is not in ``listed`` is dropped, as Wallaroo dropped it.
    """

    def find(event: Event) -> Event | None:
        partition = partitions.get(event[0])
        if partition is None:
            return (*event, "")
        key = partition(event[1])
        if listed is None:
            return (*event, plain_key(key))
        try:
            own = listed.get(key)
        except TypeError:
            raise TypeError(f"the partition key {key!r:.80} is not hashable") from None
        return None if own is None else (*event, own)

    return find


def key_of(event: Event) -> Key:
    """Return the key."""
    return event[2]  # type: ignore[no-any-return]  # a Key


def stateful(computations: Mapping[int, Any]) -> Callable[[Event, Any], list[Event]]:
    """Return the function that runs each pipeline's computation on their common state."""

    def compute(event: Event, state: Any) -> list[Event]:
        pipeline, data, _ = event
        computation = computations.get(pipeline)
        if computation is None:
            return [(pipeline, data)]
        outputs = _outputs(computation, data, state)
        return [(pipeline, output) for output in outputs if output is not None]

    return compute


def _outputs(computation: Any, data: Any, state: Any) -> list[Any]:
    """Return a state computation's outputs, and whether to save, which is ignored here."""
    is_multi = hasattr(computation, "compute_multi")
    result = (computation.compute_multi if is_multi else computation.compute)(data, state)
    if result is None:
        return []
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TypeError(f"it returned {result!r:.80}; a state computation returns (output, save)")
    return (result[0] or []) if is_multi else [result[0]]


def is_kept(pipelines: frozenset[int]) -> Callable[[Event], bool]:
    """Return the function that keeps the events of these pipelines."""

    def keep(event: Event) -> bool:
        return event[0] in pipelines

    return keep


def encoded(pipeline: int, encode: Callable[[Any], Any] | None) -> Callable[[Event], Any]:
    """Return the function that encodes its pipeline's events only."""

    def write(event: Event) -> Any:
        if event[0] != pipeline:
            return None
        return encode(event[1]) if encode is not None else event[1]

    return write
