"""Kafka positions: an offset per partition of each topic, and their arithmetic.

Where it runs: everywhere; pure.

A position's place is ``{topic: {partition: offset, "id": id, "unread": offsets}}`` with partitions
as text, since it is stored as JSON; the offset is that of the next record to be read.  ``id`` is
the topic's, which reveals one that was created again; it is missing if brokers have none, and in
positions of versions that did not query it.  ``unread`` is how much was known to wait in the topic
when the position was taken, if anything did.  Offsets that hold no event (transaction markers,
records that compaction removed) count as events: sizes are upper bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wallaroo.sources.log import Position, Range
from wallaroo.sources.offsets import advanced, backlog, cut

Place = Mapping[str, Mapping[str, Any]]
Flat = dict[tuple[str, int], int]
ID = "id"
UNREAD = "unread"


def flat(place: Place) -> Flat:
    """Return offsets by (topic, partition).

    >>> flat({"t": {"0": 5, "10": 7, "id": "an id"}})
    {('t', 0): 5, ('t', 10): 7}
    """
    return {
        (topic, int(partition)): offset
        for topic, entries in place.items()
        for partition, offset in entries.items()
        if partition.isdigit()
    }


def entries_of(place: Place, name: str) -> dict[str, Any]:
    """Return a position's entries of a name (ID, UNREAD) by topic, for topics that have one.

    >>> entries_of({"t": {"0": 5, "id": "an id"}, "u": {"0": 1}}, "id")
    {'t': 'an id'}
    """
    return {topic: entries[name] for topic, entries in place.items() if name in entries}


def position_of(
    offsets: Flat,
    ids: Mapping[str, str],
    unread: Mapping[str, int] | None = None,
    events: int | None = None,
) -> Position:
    """Return the position for offsets by (topic, partition); ``events`` is their sum by default.

    >>> position_of({("t", 1): 7, ("t", 0): 5}, {"t": "an id"})
    Position(place={'t': {'id': 'an id', '0': 5, '1': 7}}, events=12)
    """
    place: dict[str, dict[str, Any]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        if topic not in place:
            place[topic] = {ID: ids[topic]} if topic in ids else {}
            if unread and unread.get(topic):
                place[topic][UNREAD] = unread[topic]
        place[topic][str(partition)] = offset
    return Position(place, sum(offsets.values()) if events is None else events)


def readable(start: Place, end: Place) -> tuple[Flat, Flat]:
    """Return the offsets of two places, for topics that are the same in both.

    Those of a topic that was created again do not continue the earlier one's.

    >>> readable({"t": {"0": 9, "id": "a"}, "u": {"0": 1}}, {"t": {"0": 99, "id": "b"},
    ...     "u": {"0": 4, "1": 2, "id": "c"}})
    ({('u', 0): 1, ('u', 1): 0}, {('u', 0): 4, ('u', 1): 2})
    """
    again = remade(start, end)
    ends = {place: offset for place, offset in flat(end).items() if place[0] not in again}
    before = flat(start)
    return {place: before.get(place, 0) for place in ends}, ends


def remade(start: Place, end: Place) -> frozenset[str]:
    """Return the topics that have another id in another position."""
    now = entries_of(end, ID)
    before = entries_of(start, ID)
    return frozenset(topic for topic, own in before.items() if now.get(topic, own) != own)


def waiting(position: Position, head: Position) -> int:
    """Return the number of offsets between a position and a head.

    If a topic was created again, all of its offsets count.

    >>> waiting(Position({"t": {"0": 9, "id": "a"}}), Position({"t": {"0": 2, "id": "b"}}))
    2
    """
    again = remade(position.place, head.place)
    new = sum(offset for (topic, _), offset in flat(head.place).items() if topic in again)
    return new + backlog(*readable(position.place, head.place))


def step(start: Position, head: Position, events_max: int) -> Position:
    """Move a position towards a head, sharing ``events_max`` offsets over the partitions.

    >>> step(Position({"t": {"0": 1}}, 1), Position({"t": {"0": 9, "id": "a"}}, 9), 3)
    Position(place={'t': {'id': 'a', 'unread': 5, '0': 4}}, events=4)
    """
    begin, ends = readable(start.place, head.place)
    moved = advanced(begin, ends, events_max)
    unread = entries_of(start.place, UNREAD)
    unread |= dict.fromkeys((topic for topic, _ in ends), 0)
    for place, offset in moved.items():
        unread[place[0]] += max(0, ends[place] - offset)
    return position_of(
        {**flat(start.place), **moved},
        {**entries_of(head.place, ID), **entries_of(start.place, ID)},
        unread,
        start.events + sum(moved[place] - begin[place] for place in moved),
    )


def split(start: Flat, end: Flat, pieces: int, ids: Mapping[str, str]) -> list[list[Range]]:
    """Cut the offsets between two positions into at most ``pieces`` lists of ranges.

    The lists are of about the same size; parts of one partition go to pieces in order.

    >>> split({("t", 0): 0, ("t", 1): 0}, {("t", 0): 6, ("t", 1): 2}, 2, {"t": "an id"})
    ... # doctest: +NORMALIZE_WHITESPACE
    [[Range(partition='t-0', start=['t', 0, 0, 'an id'], end=4, events=4)],
     [Range(partition='t-0', start=['t', 0, 4, 'an id'], end=6, events=2),
      Range(partition='t-1', start=['t', 1, 0, 'an id'], end=2, events=2)]]
    """
    return [
        [
            Range(f"{topic}-{number}", [topic, number, low, ids.get(topic, "")], high, high - low)
            for (topic, number), low, high in piece
        ]
        for piece in cut(dict(sorted(start.items())), end, pieces)
    ]
