"""The parts of a source, for authors of sources.

Where it runs: everywhere; see below.

* `ReplayableSource`: for events that can be read again from their system (a table, a queue with
  offsets, files).  Workers read ranges of offsets; nothing is copied.
* `PollingSource`, `IteratorSource`, `PushSource`: one process polls, iterates, or is called back,
  and writes the events to the spool.
* `SourceConfig` and `SourceLog`: the interfaces below both, for positions other than offsets.

docs/sources.md has both in ten lines each.
"""

from wallaroo.connectors import source_names
from wallaroo.user_code.lazy_exports import lazy_exports

HOMES = {
    # to write a source
    "ReplayableSource": "wallaroo.sources.replayable",
    "PollingSource": "wallaroo.sources.feeds.polling",
    "IteratorSource": "wallaroo.sources.feeds.push",
    "At": "wallaroo.sources.feeds.push",
    "PushSource": "wallaroo.sources.feeds.push",
    "Push": "wallaroo.sources.feeds.push",
    # a log of your own
    "SourceConfig": "wallaroo.sources.interface",
    "FedBy": "wallaroo.sources.interface",
    "SourceLog": "wallaroo.sources.log",
    "LogContext": "wallaroo.sources.log",
    "Position": "wallaroo.sources.log",
    "Head": "wallaroo.sources.log",
    "Range": "wallaroo.sources.log",
    "Records": "wallaroo.sources.log",
    **source_names(),
}
__getattr__ = lazy_exports(__name__, HOMES)
__all__ = [*HOMES]
