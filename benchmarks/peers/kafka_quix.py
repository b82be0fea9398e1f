"""Word Count and Market Spread from a Kafka topic in Quix Streams, with the functions of the
examples.

    PYTHON -m benchmarks.peers.kafka_quix APPLICATION BROKERS TOPIC RECORDS EVENTS

Where it runs: a Python of its own in which quixstreams is installed, started by
``benchmarks.kafka.peers``.  It prints one line of JSON.

State belongs to a record's key.  Market Spread's records have the symbol as their key, so nothing
has to be moved; Word Count groups by word, as Quix does it, through a topic.  At least once, in one
process; outputs are thrown away.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from quixstreams import Application, State

from benchmarks.peers.counted import Clock, Functions, functions_of


def build(application: Any, topic: str, functions: Functions, clock: Clock) -> None:
    """Set the pipeline up; end the process at the last record."""
    records = application.topic(topic, key_deserializer="bytes", value_deserializer="bytes")
    stream = application.dataframe(records)
    compute, encode, make = functions.compute, functions.encode, functions.make
    events_of = functions.events_of
    names = getattr(make(), "__slots__", None) or list(vars(make()))

    def stateful(event: Any, state: State) -> bytes | None:
        kept = make()
        fields = state.get("fields")
        if fields is not None:
            for name, value in fields.items():
                setattr(kept, name, value)
        output = compute(event, kept)
        state.set("fields", {name: getattr(kept, name) for name in names})
        return encode(output) if output is not None else None

    def counted(_: Any) -> None:
        clock.count(1)
        if clock.is_done:
            clock.report()
            os._exit(0)

    if functions.is_expanding:
        words = stream.apply(lambda value: list(events_of(value)), expand=True)
        events = words.group_by(lambda word: word or " ", name="by_word")  # no key is empty
    else:
        events = stream.apply(lambda value: next(iter(events_of(value))))
    events.apply(stateful, stateful=True).update(counted)


def main() -> int:
    """Run until so many records are done, and print what it took."""
    name, brokers, topic, records, events = sys.argv[1:]
    functions = functions_of(name)
    clock = Clock(int(records), int(events))
    with tempfile.TemporaryDirectory() as folder:
        application = Application(
            broker_address=brokers,
            consumer_group=f"quix-{os.getpid()}",
            auto_offset_reset="earliest",
            state_dir=folder,
            loglevel="ERROR",
        )
        build(application, topic, functions, clock)
        application.run()
    return 1


if __name__ == "__main__":
    sys.exit(main())
