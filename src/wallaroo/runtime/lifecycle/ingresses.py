"""Ingresses of other hosts in a run: listener, spools, status."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from wallaroo.dataflow.plan.ordering import acts_in_event_time
from wallaroo.errors import CheckpointError, PeerError, PipelineError, Problem
from wallaroo.ingress.config import IngressSource
from wallaroo.ingress.joining.host_listener import HostListener
from wallaroo.ingress.joining.messages import KEY, WRITER, Terms, secret_of_ranges
from wallaroo.monitoring.metrics.status import IngressStatus
from wallaroo.network.key_files import kept_key
from wallaroo.network.proved_connections import TaskListener
from wallaroo.network.tls_sockets import pem_of
from wallaroo.runtime.lifecycle.spec import RunSpec
from wallaroo.sources.interface import SourceConfig
from wallaroo.sources.joined.hosts import IngressHosts
from wallaroo.sources.joined.log import SeveralSpools
from wallaroo.sources.log import SourceLog
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spool.waking import waker
from wallaroo.spool.welcomed import WelcomedHosts
from wallaroo.state.log.layout import SPOOL

_log = logging.getLogger("wallaroo.run")


class JoinedIngresses:
    """The ingresses that may join a run with ``--ingress-listen``."""

    def __init__(self, spec: RunSpec, configs: Sequence[SourceConfig], checkpoint: str):
        """Prepare; raise PipelineError if the application has nothing for them to receive."""
        self._spec = spec
        self._checkpoint = checkpoint
        self._names = tuple(config.name for config in configs if config.listening is not None)
        self._listener: HostListener | None = None
        _require_possible(spec, self._names)
        pem = pem_of(spec.options.tls) if spec.options.tls is not None else None
        certificate = pem.certificate if pem is not None else ""
        self._pem = pem
        self._secret = bytes.fromhex(kept_key(spec.site.root / KEY, WRITER, certificate).secret)
        self._hosts = IngressHosts(self._names, spec.site.root / SPOOL, waker(str(spec.site.wake)))
        spec.meter.identity.ingresses = self._status

    def joined(self, logs: Sequence[SourceLog]) -> tuple[SourceLog, ...]:
        """Return the logs, extended by other hosts' input for TCP sources."""
        secret = secret_of_ranges(self._secret)
        return tuple(
            SeveralSpools(log, secret, self._hosts)
            if isinstance(log, SpoolLog) and log.source in self._names
            else log
            for log in logs
        )

    def begin(self, listening: tuple[IngressSource, ...]) -> None:
        """Let hosts join; raise PeerError if the address is unavailable."""
        address = self._spec.options.ingress_listen
        assert address is not None
        host, port = address
        try:
            listener = TaskListener(host, self._secret, reachable_as=host, port=port)
        except OSError as error:
            raise PeerError(
                f"ingresses cannot join at {host}:{port}: {error.strerror or error}. Give "
                f"--ingress-listen an address of this host, and a port that no other program uses."
            ) from error
        listener.secure(self._pem)
        terms = Terms(self._checkpoint, listening, self._spec.options.backlog_bytes_max)
        self._listener = HostListener(listener, self._hosts, terms)
        self._listener.begin()
        key = self._spec.site.root / KEY
        _log.info("ingresses join at %s:%s with %s", *listener.address, key)

    def close(self) -> None:
        """Let no more hosts join, and end their connections."""
        if self._listener is not None:
            self._listener.close()

    def _status(self) -> tuple[IngressStatus, ...]:
        return tuple(
            IngressStatus(
                host.name,
                is_there=host.is_there,
                since=host.since,
                trouble=host.trouble,
                connections=sum(part.head().connections for part in host.parts.values()),
                backlog_events=sum(
                    max(0, part.head().position.events - host.committed_events(source))
                    for source, part in host.parts.items()
                ),
            )
            for host in self._hosts.all()
            if host.is_there or any(map(host.is_known_of, self._names))
        )


def require_none_welcomed(spool_root: Path) -> None:
    """Raise CheckpointError if an ingress joined the last run, as its input would not be read."""
    if keys := WelcomedHosts(spool_root).keys():
        name = keys[0].rpartition("/")[0]
        raise CheckpointError(
            f"ingress '{name}' on another host may have acknowledged input, which only a run with "
            f"--ingress-listen can read. Give that option to the run."
        )


def _require_possible(spec: RunSpec, names: Sequence[str]) -> None:
    """Raise PipelineError unless several hosts may receive for a TCP source."""
    plan = spec.plan
    if not names:
        what = "the application has no TCP source."
        raise PipelineError(Problem("--ingress-listen", "", what, "Leave the option out."))
    timed = [name for name, how in plan.source_times if name in names and not how.is_receipt]
    step = next((step for step in plan.steps if acts_in_event_time(step)), None)
    if timed and step is not None:
        raise PipelineError(
            Problem(
                f"step '{step.step_name}'",
                step.place,
                f"it has timers or expiry in event time, and what several hosts receive of source "
                f"'{timed[0]}' has no single order.",
                "Leave --ingress-listen out, or use windows in place of timers.",
            )
        )
