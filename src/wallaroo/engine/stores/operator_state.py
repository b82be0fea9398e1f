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
from wallaroo.engine.stores import sorted_state
from wallaroo.engine.stores.due_index import DueIndex
from wallaroo.engine.stores.pane_state import PaneState
from wallaroo.engine.stores.ttl_index import TTLIndex


class OperatorState:
    """The ordered entries of one step."""

    def __init__(
        self,
        open_reader: Callable[[str], sorted_state.EntryReader],
        groups: sorted_state.Groups,
        dumps: Callable[[Any], bytes],
        loads: Callable[[bytes], Any],
        *,
        has_panes: bool = False,
        has_chunks: bool = False,
        unreadable: sorted_state.Unreadable = sorted_state.raised,
    ):
        self.panes: PaneState | None = None
        if has_panes:
            self.panes = PaneState(open_reader(PANES), groups, dumps, loads, unreadable)
        self.groups = groups
        self.dumps = dumps
        self._loads = loads
        self._unreadable = unreadable
        self.entries = sorted_state.SortedState(
            open_reader(sorted_state.ENTRIES), groups, dumps, loads, unreadable
        )
        self.due = DueIndex(open_reader(sorted_state.DUE), groups, has_chunks=has_chunks)
        self.due_processing = DueIndex(open_reader(sorted_state.DUE_PROCESSING), groups)
        self.expiry = TTLIndex(open_reader(sorted_state.EXPIRY), groups)

    def loads(self, packed: bytes) -> Any:
        """Return a value packed within an entry."""
        try:
            return self._loads(packed)
        except Exception as error:
            self._unreadable(error)

    def changes(self) -> Iterator[tuple[str, Iterator[sorted_state.Change]]]:
        """Yield the changes to write, by kind of namespace."""
        if self.panes is not None:
            yield PANES, self.panes.changes()
        yield sorted_state.ENTRIES, self.entries.changes()
        yield sorted_state.DUE, self.due.changes()
        yield sorted_state.DUE_PROCESSING, self.due_processing.changes()
        yield sorted_state.EXPIRY, self.expiry.changes()

    def release(self) -> None:
        """Release all entries: the batch is over."""
        if self.panes is not None:
            self.panes.release()
        self.entries.release()
        self.due.release()
        self.due_processing.release()
