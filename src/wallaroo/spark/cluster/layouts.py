"""The layouts of the present members, by number of tasks.

Where it runs: driver.  Guarded by the cluster's lock.
"""

from __future__ import annotations

from wallaroo.spark.cluster.layout import Layout
from wallaroo.spark.session.shuffles import ShuffleCleaner

# after so many batches in a row with a task elsewhere than preferred the layout is replaced: the
# anchor of a task was put elsewhere when its host was busy, and would stay there
MISPLACED = (8, 64, 512)


class Layouts:
    """The layouts in use, while tasks run on their preferred hosts."""

    def __init__(self, cleaner: ShuffleCleaner):
        self._cleaner = cleaner
        self._by_tasks: dict[int, Layout] = {}
        # layouts no longer in use; the batch under way may still use them
        self._retired: list[Layout] = []
        self._misplaced = 0  # batches in a row with a task elsewhere than preferred

    def get(self, tasks: int) -> Layout | None:
        """Return the layout for so many tasks, if there is one."""
        return self._by_tasks.get(tasks)

    def put(self, layout: Layout) -> None:
        """Use a layout from now on."""
        self._by_tasks[len(layout.hosts)] = layout

    def retire(self, layout: Layout) -> None:
        """Use a layout for the batch under way only."""
        self._retired.append(layout)

    def retire_all(self) -> None:
        """Retire all layouts: the members have changed."""
        self._retired.extend(self._by_tasks.values())
        self._by_tasks = {}
        self._misplaced = 0

    def batch_done(self, tasks: int, is_as_preferred: bool) -> None:
        """Note whether a batch's tasks ran on their preferred hosts; release what is not needed."""
        self._misplaced = 0 if is_as_preferred else self._misplaced + 1
        if self._misplaced in MISPLACED:
            self._retired.append(self._by_tasks.pop(tasks))
        for layout in self._retired:
            self._cleaner.forget(layout.forget())
        self._retired = []
