"""A run of Word Count that looks busy: ten minutes of history, batches, samples, failures."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

from tests.unit.monitoring.status_api.fakes import MOVED, WORKERS, word_count
from wallaroo.engine.failures.policies import Sample
from wallaroo.engine.report import TaskReport
from wallaroo.engine.stages.sampling import StageSample, StepSample
from wallaroo.monitoring.metrics.details import StateSize
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.progress import Recovery, Usage
from wallaroo.monitoring.metrics.status import (
    ProcessStatus,
    RunState,
    RunStatus,
    SinkLine,
    SourceStatus,
    StepLosses,
    StepTime,
    TimeStatus,
)

WORDS = ("the", "and", "to", "of", "<img src=x onerror=window.hurt=1>", "liberty", "people")
EVIL = "<script>window.hurt = 1</script><img src=x onerror='window.hurt=1'>"
RATE = 48_000


class BusyRun:
    """What a status server asks of a run; ``tick`` adds a second."""

    def __init__(self, root: Path, seconds: int = 600):
        self.plan = word_count()
        self.root = root
        self._began = time.time() - seconds
        self._second = 0
        self._events = 0
        self._outputs = 0
        self.waiting_for = ""
        self.waits = ""  # of the whole run
        self.is_flowing = True
        self.meter = RunMeter(
            self.plan.application, self._began, checkpoint="/var/lib/counts", is_durable=True
        )
        for doing in ("opening the checkpoint", "opening sources", "starting Spark"):
            self.meter.starting(doing)
        self.meter.starting("")
        self.meter.recovered(
            Recovery(41, 9.4, 0.31, 18_204, "continuing from commit 41: 1,204,881 events in it")
        )
        self.meter.set_workers(WORKERS)
        self.meter.set_moved(MOVED)
        behind = TimeStatus(self._began - 2.5, 2.5, "source 'words', partition 3", 4, 1)
        self.meter.progress.step_times = (StepTime("count", behind),)
        self.meter.progress.usage = Usage(
            (
                ProcessStatus("driver", 4711, 0.12, 96 << 20),
                ProcessStatus("Spark's JVM", 4720, 0.31, 640 << 20),
                ProcessStatus("worker", 4802, 0.87, 74 << 20),
                ProcessStatus("worker", 4803, 0.84, 73 << 20),
                ProcessStatus("ingress", 4790, 0.22, 41 << 20),
            ),
            {"driver": 71.0, "worker": 1021.0},
        )
        self.lags: dict[str, int] = {}
        self.meter.enter(RunState.RUNNING)
        for _ in range(seconds):
            self.tick()

    def status(self) -> RunStatus:
        return self.meter.status(time.time())

    def go_idle(self) -> None:
        """Let event time follow the clock, as no source has events."""
        idle = TimeStatus(self._began, None, "", 4, 4, is_idle=True)
        self.meter.progress.step_times = (StepTime("count", idle),)

    def lose_events(self) -> None:
        """Let a quarter of a step's events be late."""
        warning = (
            "25% of the events of step 'count word' are late, by 40 s at most: a delay of 5 s is "
            "too small, or times are in two units"
        )
        losses = StepLosses("count word", {"late": 1204, "filtered": 88}, 1204, 4816, warning)
        self.meter.set_losses((losses,))

    def lag(self) -> None:
        """Let some partitions lag, as of a source that is a topic."""
        self.lags = {"clicks-0": 12, "clicks-1": 48_000, "clicks-2": 0, "clicks-3": 930}

    def tick(self) -> None:
        """Let one second pass: a batch, if events flow, and a look at sources and sinks."""
        self._second += 1
        at = self._began + self._second
        wave = 1 + 0.25 * math.sin(self._second / 40) + 0.05 * math.sin(self._second * 1.7)
        events = round(RATE * wave) if self.is_flowing else 0
        backlog = round(events * 0.8) if self.is_flowing else 0
        if events:
            self._batch(at, events)
        self._events += events
        source = SourceStatus(
            "Lines", "tcp 127.0.0.1:7010", self._events + backlog, self._events, backlog,
            backlog * 61, 3, False, False, None, self.lags, "wallaroo-Lines" if self.lags else "",
        )  # fmt: skip
        pending = 812_000 if self.waiting_for else 0
        sink = SinkLine("tcp", "tcp 127.0.0.1:7002", self._outputs, self.waiting_for, pending)
        self.meter.observe([source], [sink], at, self.waits)

    def _batch(self, at: float, events: int) -> None:
        number = 41 + self._second
        took_s = 0.7 + 0.15 * math.sin(self._second / 23)
        end_ns = round(at * 1e9)
        words = events * 2
        self._outputs += words
        receipts = [(round((at - took_s / 2 - took_s * i / 60) * 1000), 20) for i in range(60)]
        late_s = 1.4 + 0.5 * math.sin(self._second / 11)
        receipts.append((round((at - late_s) * 1000), 2))
        self.meter.set_tasks(2)
        self.meter.batch_done(
            number, round(end_ns - took_s * 1e9), end_ns, {"Lines": events}, {"tcp": words},
            {"Lines": receipts},
            phases_ms={"plan": 6, "tasks": took_s * 1000 - 40, "commit": 22, "sinks": 12},
        )  # fmt: skip
        self.meter.output_left(number, end_ns)
        self.meter.tasks_done(self._reports(events, words))
        size = StateSize(41_000_000, 120_000, dict.fromkeys(range(128), 320000))
        self.meter.state_is(lambda: size)
        if self._second % 60 == 0:
            self.meter.events_failed(
                number,
                {("split into words", "skip"): 3, ("count word", "dead-letter"): 1},
                [
                    Sample("split into words", "skip", "word_count.py:31",
                           EVIL, "UnicodeDecodeError: invalid start byte", 1),
                    Sample("count word", "dead-letter", "word_count.py:44",
                           "'liberty'", "ValueError: counts cannot be negative", 1),
                ],
            )  # fmt: skip

    def _reports(self, events: int, words: int) -> list[TaskReport]:
        split = StageSample(
            0,
            512,
            (
                StepSample("decode", 512, 420_000),
                StepSample("split into words", 512, 2_100_000),
                StepSample("extract_word", 1024, 420_000),
            ),
        )
        keys = tuple((word, 90 // (place + 1)) for place, word in enumerate(WORDS))
        count = StageSample(
            1, 512, (StepSample("receive", 512, 60_000), StepSample("count word", 512, 310_000),
                     StepSample("encode", 512, 260_000)),
            keys, 512 - sum(number for _, number in keys),
            {group: 1 + group * 37 % 7 for group in range(128)},
            tuple((word, 40_000 // (place + 1)) for place, word in enumerate(WORDS)),
        )  # fmt: skip
        return [
            TaskReport(0, task, "a", stage_events={0: events // 2}, edges={(0, 1): words // 2},
                       edge_bytes={(0, 1): words * 9},
                       stage_samples=(split,), busy_ms=310, worker=f"worker-{task + 1}")
            for task in range(2)
        ] + [
            TaskReport(1, task, "a", stage_events={1: words // 2}, stage_samples=(count,),
                       busy_ms=260, worker=f"worker-{task + 1}")
            for task in range(2)
        ]  # fmt: skip


class Ticking:
    """Lets a run's seconds pass in a thread while it is entered."""

    def __init__(self, run: BusyRun):
        self._run = run
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def _tick(self) -> None:
        while not self._is_over.wait(1.0):
            self._run.tick()

    def __enter__(self) -> BusyRun:
        self._thread.start()
        return self._run

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join(400)
