"""Hosts that cannot participate.

They are probed again later, and Spark is kept from using them.

Spark does not know of an exclusion: a task whose own host is busy moves, after
``spark.locality.wait``, to any host with a free core.  So while some host is excluded that wait is
long.  The scheduler reads the setting again for every stage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import SparkContext

PROBE_AGAIN_S = 10.0
WAIT = "spark.locality.wait"
WAIT_PATIENT = "30s"


@dataclass(frozen=True, slots=True)
class Exclusion:
    why: str
    until: float  # the host may be probed again then; monotonic seconds


class ExcludedHosts:
    """The excluded hosts.

    Used by the watch and by the thread in which hosts join.
    """

    def __init__(self, context: SparkContext):
        # the one that the scheduler reads; ``getConf`` returns a copy
        self._settings = context._jsc.sc().conf()
        self._usual = str(context.getConf().get(WAIT, "3s"))
        self._lock = threading.Lock()
        self._by_host: dict[str, Exclusion] = {}
        self._is_patient = False
        self._is_asking = False

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Have tasks wait for their own hosts meanwhile: a probe that fails stays where it is."""
        self._ask(True)
        try:
            yield
        finally:
            self._ask(False)

    def _ask(self, is_asking: bool) -> None:
        with self._lock:
            self._is_asking = is_asking
            self._set_locality_wait()

    def add(self, host: str, why: str) -> bool:
        """Exclude a host for a while; return whether to report that."""
        with self._lock:
            before = self._by_host.get(host)
            self._by_host[host] = Exclusion(why, time.monotonic() + PROBE_AGAIN_S)
            self._set_locality_wait()
        return before is None or before.why != why

    def may_join(self, host: str) -> bool:
        """Return whether to probe a host, for the first time or again."""
        exclusion = self._by_host.get(host)
        return exclusion is None or time.monotonic() >= exclusion.until

    def drop(self, host: str) -> None:
        """Remove a host that has joined."""
        with self._lock:
            self._by_host.pop(host, None)
            self._set_locality_wait()

    def keep(self, hosts: Container[str]) -> None:
        """Forget all other hosts: they are gone."""
        with self._lock:
            self._by_host = {
                host: exclusion for host, exclusion in self._by_host.items() if host in hosts
            }
            self._set_locality_wait()

    def _set_locality_wait(self) -> None:
        is_patient = bool(self._by_host) or self._is_asking
        if is_patient != self._is_patient:
            self._settings.set(WAIT, WAIT_PATIENT if is_patient else self._usual)
            self._is_patient = is_patient
