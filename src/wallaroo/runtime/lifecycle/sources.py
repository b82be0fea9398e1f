"""The source side of a run.

It owns the logs of the sources and the processes that fill spools.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from wallaroo.durable.ownership import Ownership
from wallaroo.errors import PipelineError, Problem
from wallaroo.ingress.process import Feeding
from wallaroo.network.replica import Replica
from wallaroo.runtime.lifecycle.ingresses import JoinedIngresses, require_none_welcomed
from wallaroo.runtime.lifecycle.spec import RunSpec
from wallaroo.runtime.standby.former_run import TAKE_OVER_S
from wallaroo.runtime.tasks.replay import tuned
from wallaroo.sources.interface import FedBy
from wallaroo.sources.log import LogContext, Position, RangeServer, SourceLog
from wallaroo.spool.remote.link import Endpoint
from wallaroo.spool.remote.storage import RemoteStorage

_log = logging.getLogger("wallaroo.run")


class RunSources:
    """The sources of one run.

    ``checkpoint`` is the checkpoint's id, ``fork`` its name if it is a fork, ``replica`` the
    replica that keeps copies of spools.
    """

    def __init__(
        self,
        spec: RunSpec,
        checkpoint: str,
        owner: Ownership,
        fork: str = "",
        replica: Replica | None = None,
    ):
        options = spec.options
        is_paced = options.speed is not None or options.rate_limit is not None
        tuning = tuned(options.tuning) if is_paced else options.tuning
        self._spec = spec
        self._owner = owner
        self._replica = replica
        configs = [source.config for source in spec.plan.sources]
        self._configs = [config.for_fork(fork) for config in configs] if fork else configs
        self._names = tuple(config.name for config in self._configs)
        self._context = LogContext(
            spec.site.root / "spool",
            checkpoint,
            spec.is_synced,
            mark_bytes=tuning.mark_bytes,
            until_now=spec.options.until_now,
        )
        self._feeders = spec.feeders
        self._ingresses: JoinedIngresses | None = None
        if options.ingress_listen:
            self._ingresses = JoinedIngresses(spec, self._configs, checkpoint)
        else:
            require_none_welcomed(self._context.spool_root)
        self.logs = self._opened(self._context)
        self._require_fed(dict(options.source_durability))
        self._certificate = ""  # the range server's, for workers elsewhere
        self.addresses: dict[str, tuple[str, int]] = {}

    def _opened(self, context: LogContext) -> tuple[SourceLog, ...]:
        logs = tuple(config.open_log(context) for config in self._configs)
        return self._ingresses.joined(logs) if self._ingresses is not None else logs

    @property
    def logs_by_name(self) -> dict[str, SourceLog]:
        """Return the logs that the driver plans with, by source name."""
        return dict(zip(self._names, self.logs, strict=True))

    def require(self, positions: Mapping[str, Position]) -> None:
        """Raise CheckpointError unless the logs hold all input after the committed positions."""
        for name, log in self.logs_by_name.items():
            if name in positions:
                log.require(positions[name])

    def beginnings(self, positions: Mapping[str, Position]) -> dict[str, Position]:
        logs = self.logs_by_name
        return {name: log.beginning() for name, log in logs.items() if name not in positions}

    def start(
        self, is_stopping: Callable[[], bool], once_free: Callable[[Callable[[], None]], None]
    ) -> None:
        """Accept input; workers elsewhere fetch it from this host.

        ``once_free`` makes a call that needs an address which a run that was taken over may still
        hold.
        """
        options = self._spec.options
        serve_on = self._spec.host.serve_on
        if options.tls is not None and serve_on is not None:
            self._certificate = Path(options.tls.certificate).read_text(encoding="ascii")
        sources = zip(self._configs, self.logs, strict=True)
        self.addresses = self._feeders.start(
            [part for config, log in sources for part in config.fed(log)],
            self._context.spool_root,
            Feeding(
                log=_log.warning,
                is_durable=self._context.is_durable,
                levels={name: options.level_of(name) for name in self._fed_names()},
                checkpoint=self._context.checkpoint,
                backlog_bytes_max=options.backlog_bytes_max,
                sys_path=options.module_paths,
                ack_ports=dict(options.ack_ports),
                serve_on=serve_on,
                serve_tls=options.tls,
                serve_files=str(self._spec.site.root) if options.store_url else "",
                hung_s=options.hung_s,
                is_stopping=is_stopping,
                wake=str(self._spec.site.wake),
                owner=self._owner,
                patience_s=TAKE_OVER_S if options.is_taking_over else 0.0,
                replica=self._replica,
                until_now=options.until_now,
            ),
        )
        if self._ingresses is not None:
            once_free(partial(self._ingresses.begin, self._feeders.listening))

    def _require_fed(self, names: Iterable[str]) -> None:
        """Raise PipelineError for levels of unknown sources, or of those that keep their input."""
        fed = self._fed_names()
        if unknown := [name for name in names if name not in fed]:
            listed = ", ".join(f"'{name}'" for name in fed) or "none"
            raise PipelineError(
                Problem(
                    "--durability",
                    "",
                    f"'{unknown[0]}' is not a source whose input is stored here.",
                    f"Sources that are: {listed}. Kafka, files and other logs keep their own.",
                )
            )

    def _fed_names(self) -> list[str]:
        """Return the names of the sources with input in a spool, including parts of chains."""
        sources = zip(self._configs, self.logs, strict=True)
        fed = [part for config, log in sources for part in config.fed(log)]
        return [part.name for part in fed if part.fed_by is not FedBy.ITSELF]

    def logs_of_workers(self) -> tuple[SourceLog, ...]:
        """Return tasks' logs by source; other hosts read by the range server."""
        server = self._server_of_workers()
        if server is None:
            return self.logs
        return self._opened(replace(self._context, server=server))

    def remote_checkpoint(self) -> RemoteStorage | None:
        """Return the checkpoint's files for remote tasks to read and add.

        None: tasks are here, or see the checkpoint's folder.
        """
        server = self._server_of_workers()
        if server is None or not self._spec.options.store_url:
            return None
        return RemoteStorage(Endpoint(server.address, server.secret, server.certificate))

    def _server_of_workers(self) -> RangeServer | None:
        if self._feeders.range_address is None:
            return None
        host, port = self._feeders.range_address
        if host == "0.0.0.0":
            host = self._spec.host.reachable_as
        return RangeServer((host, port), self._feeders.range_secret, self._certificate)

    @property
    def waiting_for(self) -> str:
        """Describe the silent source processes; empty if there are none."""
        return self._feeders.silent

    def poll(self) -> None:
        """Restart processes that were killed; raise the error that ended any other."""
        self._feeders.poll()

    def stop_feeding(self) -> None:
        """Accept no more input; current batches may still read."""
        self._feeders.stop_feeding()

    def close(self) -> None:
        if self._ingresses is not None:
            self._ingresses.close()
        self._feeders.stop()
        for log in self.logs:
            log.close()
