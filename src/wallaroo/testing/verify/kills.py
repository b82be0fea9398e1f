"""Deaths, pauses, failing disks, damaged files and wrong clocks, by seed."""

from __future__ import annotations

import time

from wallaroo.options import HostKind
from wallaroo.testing.verify.disturbances.nemesis import SIGNALS, Nemesis
from wallaroo.testing.verify.disturbances.orders import Orders
from wallaroo.testing.verify.injectors import Injection
from wallaroo.testing.verify.trial.schedule import Kill, schedule


class Kills:
    """Disturbances of single processes."""

    def __init__(self, injection: Injection):
        self._injection = injection
        self._nemesis = Nemesis(
            injection.run,
            injection.options.seed,
            injection.watch,
            injection.result,
            injection.say,
            Orders(injection.folder / "orders"),
            injection.flips,
            is_resident=injection.options.host is HostKind.RESIDENT,
        )

    def disturb(self, began: float) -> None:
        """Carry out the faults that the options' seed determines, in order."""
        options = self._injection.options
        planned = schedule(
            options.kills,
            options.seed,
            options.kinds,
            faults=options.injected,
            together=options.together,
        )
        for number, kill in enumerate(planned, 1):
            if time.monotonic() - began > options.seconds or options.is_enough():
                break
            self._strike(number, kill)

    def _strike(self, number: int, planned: Kill) -> None:
        if not planned.is_hurried:
            self._injection.await_progress("output after a disturbance")
        self._injection.watch.pause(planned.pause_s)
        if self._nemesis.do(number, planned):
            self._injection.progress.mark()
            if planned.fault in SIGNALS:
                self._injection.progress.note_kill(planned.kind)
