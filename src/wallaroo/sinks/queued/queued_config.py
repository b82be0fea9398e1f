"""QueuedSinkConfig: the configuration of a sink that a queued committer writes.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.errors import optional_library
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem
from wallaroo.sinks.staging import StagedWriter
from wallaroo.sinks.target_record import without_secrets
from wallaroo.steps.option_values import as_names, names_twice
from wallaroo.user_code.references import load


class QueuedSinkConfig(SinkConfig):
    """A sink whose outputs a driver thread writes after the commit.

    A subclass adds options and names its `ExternalSystem`.  That is loaded in the driver only: so
    workers stage outputs without the client library, and the system's module can import the
    configuration, which the system takes as it is.
    """

    system: ClassVar[str]  # "module:class" of its `ExternalSystem`
    # the same of the `QueuedCommitter` that writes to it
    queue: ClassVar[str] = "wallaroo.sinks.queued.queued_committer:QueuedCommitter"
    # an optional library that the system imports, as pip names it
    library: ClassVar[str] = ""
    has_staged_tokens: ClassVar[bool] = True

    @property
    def address(self) -> str:
        return without_secrets(getattr(self, "url", ""))

    def writer(self, context: WriteContext) -> SinkWriter:
        return StagedWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        """Return the committer, which writes from the driver.

        Raises PeerError if the library is missing, or an option cannot be read.
        """
        context = CommitContext(sink, staging, is_durable)
        committer: Callable[..., SinkCommitter] = load(self.queue)
        return committer(self.open_system(context), context, points=self.kind)

    def _names(self, option: str, columns: Collection[str]) -> tuple[str, ...]:
        """Return an option's names of columns, given as one name or several."""
        value = getattr(self, option)
        names = as_names(value)
        if twice := names_twice(names):
            raise self._wrong(f"{option}={value!r} names {twice!r} twice.", "Name each once.")
        for name in names:
            if name not in columns:
                raise self._wrong(
                    f"{option}={value!r} names {name!r}, which is not a column.",
                    f"Name some of {', '.join(columns)}.",
                )
        return names

    def open_system(self, context: CommitContext) -> ExternalSystem[Any]:
        """Return the system that the driver writes to."""
        user = f"Sink '{context.sink}' ({self.label})"
        with optional_library(user, self.library) if self.library else nullcontext():
            system: Callable[..., ExternalSystem[Any]] = load(self.system)
        return system(self, context)
