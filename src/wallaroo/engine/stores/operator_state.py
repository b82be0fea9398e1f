"""The store of a step that keeps entries (``Step.keeps_entries``).

It belongs to one task of one batch, and is separate from the step's state.

* ``entries``: values under (key, sub).  Only touched values whose bytes differ are written.
* ``due``: the entries due in event time, and ``due_processing``: in processing time.  Both are
  range-scanned in time order: no operation visits all keys.
* ``expiry``: when state expires, in the step's kind of time.
* ``panes``: accumulators of windows, if the step's are stored by pane; else None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.dataflow.plan.model import PANES
from wallaroo.engine.stores.due_index import DueIndex
from wallaroo.engine.stores.pane_state import PaneState
from wallaroo.engine.stores.sorted_state import (
    DUE,
    DUE_PROCESSING,
    ENTRIES,
    EXPIRY,
    Change,
    EntryReader,
    Groups,
    SortedState,
    Unreadable,
    raised,
)
from wallaroo.engine.stores.ttl_index import TTLIndex


class OperatorState:
    """The ordered entries of one step."""

    def __init__(
        self,
        open_reader: Callable[[str], EntryReader],
        groups: Groups,
        dumps: Callable[[Any], bytes],
        loads: Callable[[bytes], Any],
        *,
        has_panes: bool = False,
        has_chunks: bool = False,
        unreadable: Unreadable = raised,
    ):
        self.panes: PaneState | None = None
        if has_panes:
            self.panes = PaneState(open_reader(PANES), groups, dumps, loads, unreadable)
        self.groups = groups
        self.dumps = dumps
        self._loads = loads
        self._unreadable = unreadable
        self.entries = SortedState(open_reader(ENTRIES), groups, dumps, loads, unreadable)
        self.due = DueIndex(open_reader(DUE), groups, has_chunks=has_chunks)
        self.due_processing = DueIndex(open_reader(DUE_PROCESSING), groups)
        self.expiry = TTLIndex(open_reader(EXPIRY), groups)

    def loads(self, packed: bytes) -> Any:
        """Return a value packed within an entry."""
        try:
            return self._loads(packed)
        except Exception as error:
            self._unreadable(error)

    def changes(self) -> Iterator[tuple[str, Iterator[Change]]]:
        """Yield the changes to write, by kind of namespace."""
        if self.panes is not None:
            yield PANES, self.panes.changes()
        yield ENTRIES, self.entries.changes()
        yield DUE, self.due.changes()
        yield DUE_PROCESSING, self.due_processing.changes()
        yield EXPIRY, self.expiry.changes()

    def release(self) -> None:
        """Release all entries: the batch is over."""
        if self.panes is not None:
            self.panes.release()
        self.entries.release()
        self.due.release()
        self.due_processing.release()
