"""The source side of a run: the processes that fill the spools, and the spools.

Where it runs: driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from wallaroo.ingress.process import Feeders
from wallaroo.options import RunOptions
from wallaroo.plan.model import Plan
from wallaroo.range_server.client import RemoteSpool
from wallaroo.spool.format import folder_of
from wallaroo.spool.reader import SpoolReader

_log = logging.getLogger("wallaroo.run")


class SourceSide:
    """The sources of one run."""

    def __init__(self, plan: Plan, root: Path, checkpoint: str, is_durable: bool):
        self._names = tuple(source.config.name for source in plan.sources)
        self._configs = [source.config for source in plan.sources]
        self._root = root / "spool"
        self._checkpoint = checkpoint
        self._is_durable = is_durable
        self._feeders = Feeders()
        self._certificate = ""  # of the range server, for workers elsewhere
        self.addresses: dict[str, tuple[str, int]] = {}

    @property
    def folders(self) -> dict[str, Path]:
        """The spools, by source name."""
        return {name: folder_of(self._root, name) for name in self._names}

    @property
    def readers(self) -> tuple[SpoolReader, ...]:
        """The spools by source, read on this machine."""
        return tuple(SpoolReader(folder) for folder in self.folders.values())

    def start(
        self, options: RunOptions, serve_on: str | None, is_stopping: Callable[[], bool]
    ) -> None:
        """Accept input.  ``serve_on``: workers elsewhere fetch it from this address."""
        if options.tls is not None and serve_on is not None:
            self._certificate = Path(options.tls.certificate).read_text(encoding="ascii")
        self.addresses = self._feeders.start(
            self._configs,
            self._root,
            is_durable=self._is_durable,
            backlog_bytes_max=options.backlog_bytes_max,
            sys_path=options.module_paths,
            log=_log.warning,
            ack_ports=dict(options.ack_ports),
            serve_on=serve_on,
            serve_tls=options.tls,
            hung_s=options.hung_s,
            is_stopping=is_stopping,
            checkpoint=self._checkpoint,
        )

    def spools(self, reachable_as: str) -> tuple[SpoolReader | RemoteSpool, ...]:
        """What tasks read, by source: the spools themselves, or this machine's range server."""
        if self._feeders.range_address is None:
            return self.readers
        host, port = self._feeders.range_address
        if host == "0.0.0.0":
            host = reachable_as
        secret = self._feeders.range_secret
        return tuple(
            RemoteSpool((host, port), secret, name, self._certificate) for name in self._names
        )

    @property
    def waiting_for(self) -> str:
        """Which processes of sources show no sign of life, in words; empty if none."""
        return self._feeders.silent

    def poll(self) -> None:
        """Start processes again that were killed; raise what ended one otherwise."""
        self._feeders.poll()

    def stop_feeding(self) -> None:
        """Accept no more; batches under way may still read."""
        self._feeders.stop_feeding()

    def close(self) -> None:
        """Stop everything."""
        self._feeders.stop()
