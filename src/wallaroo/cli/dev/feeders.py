"""A run's ingress and feeders, as threads of its process.

Where it runs: driver, in ``wallaroo dev``.  Breakpoints work in a user's sources, and a start needs
no further process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from wallaroo.durable.folders import make_private
from wallaroo.errors import PeerError, WallarooError
from wallaroo.ingress.config import IngressConfig
from wallaroo.ingress.feeder import Feeder, FeederConfig
from wallaroo.ingress.process import FEEDING, Feeders, Feeding
from wallaroo.ingress.server import Ingress
from wallaroo.network.tls_sockets import Address
from wallaroo.processes.child import Parent
from wallaroo.sources.interface import FedBy, SourceConfig
from wallaroo.spool import folder_of
from wallaroo.spool.waking import wake_at

STOP_S = 1.0  # for threads to publish what they have; user code may not return


class ThreadParent(Parent):
    """The parent of threads, which stops them by closing a pipe."""

    def __init__(self) -> None:
        super().__init__(heartbeat=-1)
        self._orders, self._end = os.pipe()

    @property
    def filenos(self) -> tuple[int, ...]:
        return (self._orders,)

    def stop(self) -> None:
        """Ask the threads to stop; safe to repeat."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1


class ThreadFeeders(Feeders):
    """The threads of an application's sources."""

    def __init__(self) -> None:
        super().__init__()
        self._parent = ThreadParent()
        self._threads: list[threading.Thread] = []
        self._failures: list[WallarooError] = []

    def start(
        self, sources: Sequence[SourceConfig], spool_root: Path, options: Feeding = FEEDING
    ) -> dict[str, Address]:
        self._options = options
        self._parent.owner = options.owner
        wake_at(options.wake)
        make_private(spool_root, is_durable=options.is_durable)
        listening = self._listening(sources, spool_root)
        if listening:
            config = IngressConfig(
                listening, options.is_durable, options.backlog_bytes_max, options.checkpoint
            )
            ingress = Ingress(config, self._parent)
            self.addresses, self.ack_addresses = ingress.listen()
            self._begin("the ingress", ingress.run)
        for source in sources:
            if source.fed_by is FedBy.FEEDER:
                self._feed(source, folder_of(spool_root, source.name))
        return self.addresses

    def _feed(self, source: SourceConfig, folder: Path) -> None:
        options = self._options
        config = FeederConfig(
            source.name,
            "",  # a thread needs no pickle
            str(folder),
            is_durable=options.is_synced(source.name),
            backlog_bytes_max=options.backlog_bytes_max,
            checkpoint=options.checkpoint,
            until_now=options.until_now,
            awaits_commits=options.awaits_commits(source.name),
        )
        self._begin(f"source '{source.name}'", Feeder(config, source, self._parent).run)

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._work, args=(name, work), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except WallarooError as error:
            self._failures.append(error)
        except OSError as error:
            self._failures.append(PeerError(f"{name} failed: {error}"))

    def poll(self) -> None:
        """Raise the error that ended a thread, if any."""
        if self._failures:
            raise self._failures[0]

    def stop_feeding(self) -> None:
        self._parent.stop()
        for thread in self._threads:
            thread.join(STOP_S)

    def stop(self) -> None:
        self.stop_feeding()
