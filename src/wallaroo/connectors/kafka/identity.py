"""Comparison of a Kafka position's topics with those of the brokers.

Where it runs: driver; pure.

The invariants:

* A topic that was created again (it has another id) is never continued at an offset of the earlier
  one: it is read from its beginning, or the run fails.
* A loss of unprocessed offsets fails the run with their number, or is skipped and reported with it.
* A topic that the source no longer reads keeps its offsets: it resumes there if it is added again.
  It is not compared meanwhile.
* Brokers that have just started may not know topics, or their last records, for a moment: such a
  loss counts only once it has lasted (`TopicLoss.is_certain`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wallaroo.connectors.kafka.broker_names import is_among
from wallaroo.connectors.kafka.offsets import ID, UNREAD, Flat, entries_of, flat, position_of
from wallaroo.sources.log import Position

SKIP = "configure the source with on_data_loss='skip'"
OWN = "give this application a checkpoint of its own"


@dataclass(frozen=True, slots=True)
class Topics:
    """A source's topics as the brokers last reported them."""

    first: Flat  # the beginning of each partition
    ends: Flat
    ids: Mapping[str, str]
    # the known ends of each partition, by topic and id: also for topics that are gone
    known: Mapping[tuple[str, str], Mapping[int, int]]
    wanted: Sequence[str]  # the names and patterns that the source reads


class TopicLoss(NamedTuple):
    """A change of something that a position refers to."""

    topic: str
    what: str  # a clause, without its full stop
    way_out: str  # a sentence, for the error
    skipping: str  # the effect of skipping, in words
    moved: Flat  # the offsets at which partitions continue
    gone: frozenset[int] = frozenset()  # the partitions that no longer exist
    is_certain: bool = False
    is_harmless: bool = False  # everything that was removed was processed
    missed: int = 0  # unprocessed offsets that are gone, as far as known


def losses(position: Position, now: Topics) -> Iterator[TopicLoss]:
    """Yield the changes that prevent the position from being continued as it is."""
    unread = entries_of(position.place, UNREAD)
    ids = entries_of(position.place, ID)
    there = {topic for topic, _ in now.ends}
    for topic, done in _by_topic(flat(position.place)).items():
        if not is_among(topic, now.wanted):
            continue
        known = now.known.get((topic, ids.get(topic, "")), {})
        missed = {number: max(0, known.get(number, 0) - offset) for number, offset in done.items()}
        missed_most = max(sum(missed.values()), unread.get(topic, 0))
        if topic in ids and now.ids.get(topic, ids[topic]) != ids[topic]:
            yield _remade(topic, done, missed_most, now)
        elif topic not in there:
            yield _gone(topic, done, missed_most, topic in ids)
        else:
            yield from _partitions(topic, done, missed, now)


def settled(position: Position, taken: Sequence[TopicLoss], now: Topics) -> Position:
    """Return the position to continue from, without the lost parts.

    It has the ids of topics that ``position`` has none of, and the beginnings of topics that were
    added by name.  The very same one if nothing changes.
    """
    ids = entries_of(position.place, ID)
    new = added(position, now)
    named = (position.place.keys() - ids) | {topic for topic, _ in new}
    adopted = {topic: now.ids[topic] for topic in named if topic in now.ids}
    if not taken and not adopted and not new:
        return position
    ids |= adopted
    offsets = flat(position.place) | new
    unread = entries_of(position.place, UNREAD)
    for loss in taken:
        offsets = {
            place: offset
            for place, offset in offsets.items()
            if place[0] != loss.topic or place[1] not in loss.gone
        }
        offsets |= loss.moved
        unread.pop(loss.topic, None)
        if loss.topic in now.ids:
            ids[loss.topic] = now.ids[loss.topic]
    return position_of(offsets, ids, unread, position.events)


def added(position: Position, now: Topics) -> Flat:
    """Return where partitions of new topics begin, if that is not at offset 0.

    A topic of a pattern may have been created since: records already removed from it are a loss.
    """
    new = set(now.wanted) - position.place.keys()
    return {place: offset for place, offset in now.first.items() if offset and place[0] in new}


def _by_topic(offsets: Flat) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, number), offset in offsets.items():
        found.setdefault(topic, {})[number] = offset
    return found


def _remade(topic: str, own: dict[int, int], missed: int, now: Topics) -> TopicLoss:
    moved = {place: offset for place, offset in now.first.items() if place[0] == topic}
    last = f"; the last {missed:,} offsets of the earlier one were not" if missed else ""
    return TopicLoss(
        topic,
        f"Kafka topic '{topic}' was deleted and created again: {sum(own.values()):,} offsets of "
        f"the earlier one were processed{last}",
        f"To begin the new topic at its beginning, {SKIP}, or {OWN}.",
        f"{missed:,} offsets are skipped; the new topic is read from its beginning",
        moved,
        frozenset(own) - {number for _, number in moved},
        missed=missed,
    )


def _gone(topic: str, own: dict[int, int], missed: int, is_known: bool) -> TopicLoss:
    done = f"{sum(own.values()):,} offsets of it were processed"
    if missed:
        rest = f", and {missed:,} more were not"
    elif is_known:
        rest = ", and no more are known of"
    else:
        rest = ", and whether there were more is not known"
    return TopicLoss(
        topic,
        f"Kafka topic '{topic}' is not there any more: {done}{rest}",
        f"Restore it; or, to continue without it, {SKIP}; or {OWN}.",
        f"{missed:,} offsets are skipped; the source continues without the topic",
        {},
        frozenset(own),
        is_harmless=is_known and not missed,
        missed=missed,
    )


def _partitions(
    topic: str, own: dict[int, int], missed: dict[int, int], now: Topics
) -> Iterator[TopicLoss]:
    for number, offset in sorted(own.items()):
        place = topic, number
        if place not in now.ends:
            yield TopicLoss(
                topic,
                f"Kafka has no partition {number} of topic '{topic}', of which this application "
                f"has processed {offset:,} offsets; was the topic recreated?",
                f"Restore it; or, to continue without that partition, {SKIP}; or {OWN}.",
                f"{missed[number]:,} offsets are skipped",
                {},
                frozenset({number}),
                missed=missed[number],
            )
        elif offset < now.first.get(place, offset):
            first = now.first[place]
            yield TopicLoss(
                topic,
                f"partition {number} of Kafka topic '{topic}' begins at offset {first:,} now; the "
                f"{first - offset:,} offsets from {offset:,} on were not processed and are gone",
                f"To continue without them, {SKIP}.",
                f"{first - offset:,} offsets are skipped",
                {place: first},
                is_certain=True,
                missed=first - offset,
            )
        elif offset > now.ends[place]:
            end = now.ends[place]
            yield TopicLoss(
                topic,
                f"partition {number} of Kafka topic '{topic}' ends at offset {end:,} now, and this "
                f"application continues at offset {offset:,}; did the brokers lose records, or was "
                f"the topic recreated?",
                f"To continue at its present end, {SKIP}, or {OWN}.",
                f"what it holds before offset {end:,} ({end - now.first.get(place, 0):,} offsets) "
                f"counts as processed",
                {place: end},
            )
