"""The source interface: a configuration, its log, and the log's feeder.

Where it runs: configurations are pickled; feeders run in processes of their own, started by the
driver.
"""

from __future__ import annotations

from abc import ABC
from contextlib import nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from wallaroo.errors import InternalError, Problem, WallarooParameterError, optional_library
from wallaroo.protocols.framing import Framing
from wallaroo.sources.feed import EVENT_FRAMING, Feed
from wallaroo.sources.listening import Listening
from wallaroo.steps.kinds import Decoder
from wallaroo.user_code.references import load

# defaults of type variables are for type checkers: Python itself has them from 3.13 on
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from wallaroo.sources.log import LogContext, SourceLog

    # so that a configuration's class alone stays a type
    Event = TypeVar("Event", covariant=True, default=Any)
    # the file source's event type without a decoder
    Line = TypeVar("Line", covariant=True, default=str)
else:
    from typing import TypeVar

    Event = TypeVar("Event", covariant=True)
    Line = TypeVar("Line", covariant=True)


class FedBy(Enum):
    """Writer of a source's log."""

    CLIENTS = "clients"  # clients of a port: the ingress writes a spool
    FEEDER = "feeder"  # a process of its own, which runs the source's feed, writes a spool
    ITSELF = "itself"  # the system that keeps the log; there is no spool


class SourceConfig(ABC, Generic[Event]):
    """A picklable source of events of type ``Event``; subclasses are frozen dataclasses."""

    kind: ClassVar[str] = "source"
    # the format of its label: "mqtt {0.topic}"
    label_form: ClassVar[str] = "{0.kind} {0.name}"
    # "module:function" that opens the log of a source without a feed, the feed of others;
    # its arguments are the configuration, and that of `open_log` or `open_feed`.  It is loaded
    # there: so applications are built, and tasks run, without the client library.
    opener: ClassVar[str] = ""
    # an optional library that the opener's module imports, as pip names it, and the host that
    # needs it unless that is the driver's
    library: ClassVar[tuple[str, ...]] = ()
    fed_by: ClassVar[FedBy] = FedBy.FEEDER
    carries_times: ClassVar[bool] = False  # its records may carry event times
    # all of its events have one order, independent of batches and tasks; otherwise only those
    # within each partition do
    has_one_order: ClassVar[bool] = True
    # a ``host`` and ``port`` of the configuration are where it listens; otherwise, a server's
    has_port: ClassVar[bool] = True
    name: str
    decoder: Decoder[Event]

    # Python 3.11 cannot write the type down on instances that are frozen and have slots
    if not TYPE_CHECKING:

        def __class_getitem__(cls, event):
            return cls

    @property
    def label(self) -> str:
        """Return the name for errors and tables, e.g. ``tcp 127.0.0.1:7010``."""
        return self.label_form.format(self)

    @property
    def wire_framing(self) -> Framing:
        """Return the framing of this source, in its spool and on its port."""
        return EVENT_FRAMING

    @property
    def has_plain_payloads(self) -> bool:
        """Return whether decoders are called with bytes, which can be sent undecoded."""
        return True

    @property
    def listening(self) -> Listening | None:
        """Return the address and options for the ingress to listen; None if it does not."""
        return None

    @property
    def may_end(self) -> bool:
        """Return whether the source may end, as a file does and a port does not."""
        return bool(getattr(self, "until_now", False))

    def fed(self, log: SourceLog) -> tuple[SourceConfig[Any], ...]:
        """Return the sources whose clients or feeders fill a run's ``log`` of this source."""
        return (self,)

    def for_trial(self) -> Self:
        """Return the source for a run that the other system must not take for the application.

        It may run in parallel with the application, so it moves no position that is stored there
        under the application's name, and ends none of its sessions.
        """
        return self

    @property
    def exclusive(self) -> str:
        """Describe the resource that only one application may read; empty if none."""
        return ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Describe what it reads in the other system, if positions keep the rest, too."""
        return ()

    def for_fork(self, name: str) -> Self:
        """Return the source for a fork, which runs in parallel with the original application.

        ``name`` is added to the name under which the other system knows the application.
        """
        return self

    def open_log(self, context: LogContext) -> SourceLog:
        """Return the log that a run reads: the spool, unless the source keeps a log itself.

        Raises PeerError if an optional library is missing.
        """
        if self.opener and self.fed_by is FedBy.ITSELF:
            log: SourceLog = self._load_opener()(self, context)
            return log
        # it imports the readers of spools, local and over the network
        from wallaroo.sources.spooled import open_spool

        return open_spool(
            self.name,
            context,
            self.wire_framing,
            has_times=self.carries_times,
            is_ended=context.until_now and self.fed_by is FedBy.CLIENTS,
        )

    def open_feed(self, resume: bytes) -> Feed:
        """Return the feed that a feeder runs, continuing at ``resume`` (empty: from the start).

        Raises PeerError if an optional library is missing.
        """
        if self.opener and self.fed_by is FedBy.FEEDER:
            feed: Feed = self._load_opener()(self, resume)
            return feed
        raise InternalError(f"source '{self.name}' ({self.label}) is not fed by a feeder")

    def _load_opener(self) -> Any:
        user = f"Source '{self.name}' ({self.label})"
        with optional_library(user, *self.library) if self.library else nullcontext():
            return load(self.opener)

    def _wrong(self, what: str, fix: str) -> WallarooParameterError:
        """Return the error for a parameter that cannot be used."""
        element = f"{type(self).__name__}(name={self.name!r})"
        return WallarooParameterError(Problem(element, "", what, fix))
