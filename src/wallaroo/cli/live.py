"""What a person sees of a run: a live table on a terminal, a log line every few seconds elsewhere,
a summary at the end.

Where it runs: driver.  `live_table`, `log_line` and `summary` are pure: a `RunStatus` in, something
to print out.  The views own the terminal and give it back as they found it.  Everything goes to
stderr; stdout belongs to the application's own output.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wallaroo.cli.formatting import duration, group_ranges, milliseconds, size, spread
from wallaroo.metrics.status import (
    ErrorCount,
    PipelineLatency,
    RunStatus,
    SinkLine,
    SourceStatus,
    WorkerStatus,
)

LINE_EVERY_S = 5.0
WORKERS_SHOWN = 16  # a larger table would push everything else off the screen
_STATE_STYLES = {
    "starting": "yellow",
    "running": "green",
    "stopping": "yellow",
    "stopped": "bold",
    "input ended": "bold",
    "failed": "bold red",
}
_CURSOR_ON = b"\r\n\x1b[?25h"


# -- words
# --------------------------------------------------------------------------------------------------


def _backlog(status: RunStatus) -> tuple[int, int]:
    return sum(source.backlog_events for source in status.sources), sum(
        source.backlog_bytes for source in status.sources
    )


def _checkpoint(status: RunStatus) -> str:
    if not status.checkpoint:
        return "none"
    return (
        status.checkpoint
        if status.is_durable
        else f"{status.checkpoint} (temporary; keep one with --checkpoint DIR)"
    )


def _source_note(source: SourceStatus) -> str:
    if source.is_paused:
        return "paused: backlog at its bound"
    return "ended" if source.is_ended else ""


# -- the live table
# --------------------------------------------------------------------------------------------------


def live_table(
    status: RunStatus, workers_from: int = 2, workers_shown: int = WORKERS_SHOWN
) -> RenderableType:
    """The whole state of a run on one screen; its workers if there are ``workers_from``,
    ``workers_shown`` of them at most.
    """
    parts: list[RenderableType] = [_headline(status), _rates(status)]
    if status.sources:
        parts.append(_sources(status.sources))
    if status.sinks:
        parts.append(_sinks(status.sinks))
    if status.latency:
        parts.append(_latencies(status.latency))
    if status.errors:
        parts.append(_errors(status.errors))
    if len(status.workers) >= workers_from:
        parts.append(_workers(status.workers, workers_shown))
    if status.moved:
        parts.append(Text(f" {status.moved}"))
    if status.waiting_for:
        parts.append(Text(f" waiting for {status.waiting_for}", style="yellow"))
    parts.append(Text(f" checkpoint {_checkpoint(status)}", style="dim"))
    return Group(*parts)


def _headline(status: RunStatus) -> Text:
    line = Text(f" {status.application} ", style="bold")
    line.append(status.state, style=_STATE_STYLES.get(status.state, ""))
    line.append(
        f"  {duration(status.elapsed_s)}, {status.batches:,} batches, {status.tasks} tasks",
        style="not bold",
    )
    return line


def _rates(status: RunStatus) -> Table:
    events, size_bytes = _backlog(status)
    table = _table("in/s", "done/s", "out/s", "backlog", "batch", "median")
    table.add_row(
        f"{status.events_in_per_s:,.0f}",
        f"{status.events_done_per_s:,.0f}",
        f"{status.outputs_per_s:,.0f}",
        f"{events:,} ({size(size_bytes)})",
        milliseconds(status.batch_ms),
        milliseconds(status.batch_ms_median),
    )
    return table


def _sources(sources: tuple[SourceStatus, ...]) -> Table:
    table = _table(
        "source", "at", "connections", "events in", "done", "backlog", "", words=(0, 1, 6)
    )
    for source in sources:
        table.add_row(
            Text(source.name),
            Text(source.label),
            f"{source.connections}",
            f"{source.events_in:,}",
            f"{source.events_done:,}",
            f"{source.backlog_events:,}",
            Text(_source_note(source), style="yellow"),
        )
    return table


def _sinks(sinks: tuple[SinkLine, ...]) -> Table:
    table = _table("sink", "at", "outputs", "to send", "waiting for", words=(0, 1, 4))
    for sink in sinks:
        waiting = Text(sink.waiting_for, style="yellow")
        table.add_row(
            Text(sink.name),
            Text(sink.label),
            f"{sink.outputs:,}",
            size(sink.pending_bytes),
            waiting,
        )
    return table


def _latencies(latency: tuple[PipelineLatency, ...]) -> Table:
    table = _table("latency of", "p50", "p95", "p99", "p99.9", "max", "outputs", words=(0,))
    for seen in latency:
        values = (seen.p50_ms, seen.p95_ms, seen.p99_ms, seen.p999_ms, seen.max_ms)
        table.add_row(Text(seen.pipeline), *map(milliseconds, values), f"{seen.count:,}")
    return table


def _errors(errors: tuple[ErrorCount, ...]) -> Table:
    table = _table("failed in", "skipped", "dead letters", "last", words=(0, 3))
    for error in errors:
        table.add_row(
            Text(error.step),
            f"{error.skipped:,}",
            f"{error.dead_lettered:,}",
            Text(error.last, style="yellow"),
        )
    return table


def _workers(workers: tuple[WorkerStatus, ...], shown: int) -> Table:
    """Who works on which share of the keys: the state of a key group is in the view of the worker
    that has it.
    """
    table = _table(
        "worker", "host", "cores", "tasks", "key groups", "state in its view", words=(0, 1, 5)
    )
    for worker in workers[:shown]:
        ranges = Text(group_ranges(worker.key_groups))
        table.add_row(
            Text(worker.name),
            Text(worker.host),
            f"{worker.cores}",
            f"{worker.tasks}",
            f"{len(worker.key_groups)}",
            ranges,
        )
    if len(workers) > shown:
        rest = tuple(workers[shown:])
        table.add_row(
            f"{len(rest)} more",
            "",
            "",
            "",
            "",
            Text(spread([len(worker.key_groups) for worker in rest])),
        )
    return table


def _table(*columns: str, words: tuple[int, ...] = ()) -> Table:
    """An empty table; columns of ``words`` are ranged left and may wrap, numbers are ranged right
    and may not.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=True, header_style="dim")
    for number, column in enumerate(columns):
        is_words = number in words
        table.add_column(
            column, justify="left" if is_words else "right", no_wrap=not is_words, overflow="fold"
        )
    return table


# -- text
# --------------------------------------------------------------------------------------------------


def log_line(status: RunStatus) -> str:
    """The key facts in one line, with units, for logs."""
    events, size_bytes = _backlog(status)
    facts = [
        f"{status.application} {status.state} {duration(status.elapsed_s)}",
        f"in {status.events_in_per_s:,.0f}/s, done {status.events_done_per_s:,.0f}/s, out "
        f"{status.outputs_per_s:,.0f}/s",
        f"backlog {events:,} events ({size(size_bytes)})",
        f"{status.batches:,} batches, last {milliseconds(status.batch_ms)}, median "
        f"{milliseconds(status.batch_ms_median)}",
    ]
    facts += [
        f"latency of {seen.pipeline} p50 {milliseconds(seen.p50_ms)}, p99 "
        f"{milliseconds(seen.p99_ms)}"
        for seen in status.latency
    ]
    facts += [
        f"source {source.name} {_source_note(source)}"
        for source in status.sources
        if source.is_paused
    ]
    facts += [_error_words(error) for error in status.errors]
    if len(status.workers) > 1:
        facts.append(
            f"{len(status.workers)} workers: "
            f"{spread([len(worker.key_groups) for worker in status.workers])}"
        )
    if status.waiting_for:
        facts.append(f"waiting for {status.waiting_for}")
    return " | ".join(facts)


def _error_words(error: ErrorCount) -> str:
    """Which step failed how often, and what became of the events."""
    said = [
        f"{count:,} {what}"
        for count, what in ((error.skipped, "skipped"), (error.dead_lettered, "dead letters"))
        if count
    ]
    return f"failed in {error.step}: {', '.join(said)}"


def summary(status: RunStatus) -> str:
    """What a run did, for its end: several lines of plain text."""
    seconds = max(status.elapsed_s, 1e-9)
    begun = (
        f"after batch {status.recovered_batch} of its checkpoint"
        if status.recovered_batch >= 0
        else "empty"
    )
    lines = [
        f"{status.application}: {status.state} after {duration(status.elapsed_s)}, "
        f"{status.batches:,} batches"
        f" (median {milliseconds(status.batch_ms_median)})",
        f"  events in    {status.events_in:,}",
        f"  events done  {status.events_done:,}  ({status.events_done / seconds:,.0f}/s over the "
        f"whole run)",
        f"  outputs      {status.outputs:,}  ({status.outputs / seconds:,.0f}/s)",
    ]
    left = _backlog(status)[0]
    if left:
        lines.append(f"  left over    {left:,} events in the spool, not yet processed")
    lines += [
        f"  waiting for  {sink.waiting_for}: {size(sink.pending_bytes)} of {sink.name} not sent"
        for sink in status.sinks
        if sink.pending_bytes
    ]
    lines += [f"  {_error_words(error)}; last at {error.last}" for error in status.errors]
    if status.moved:
        lines.append(f"  last move    {status.moved}")
    lines += [f"  began        {begun}", f"  checkpoint   {_checkpoint(status)}"]
    return "\n".join(lines + _latency_lines(status.latency))


def _latency_lines(latency: tuple[PipelineLatency, ...]) -> list[str]:
    if not latency:
        return []
    width = max(len("latency, receipt to output"), *(len(seen.pipeline) for seen in latency))
    heads = "".join(f"{head:>12}" for head in ("p50", "p95", "p99", "p99.9", "max"))
    lines = [f"  {'latency, receipt to output':<{width}}{heads}"]
    for seen in latency:
        values = (seen.p50_ms, seen.p95_ms, seen.p99_ms, seen.p999_ms, seen.max_ms)
        lines.append(
            f"  {seen.pipeline:<{width}}"
            + "".join(f"{milliseconds(value):>12}" for value in values)
        )
    return lines


# -- views
# --------------------------------------------------------------------------------------------------


class View(Protocol):
    """Something that shows one status after the other; a context manager that leaves the terminal
    as it was.
    """

    def show(self, status: RunStatus) -> None:
        """Show this status now, or soon, or not at all."""

    def say(self, text: str) -> None:
        """Print a line that stays."""

    def close(self) -> None:
        """Give the terminal back; safe to repeat."""

    def abandon(self) -> None:
        """Give the terminal back from a signal handler that ends the process."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class _Closing:
    def close(self) -> None:
        """Nothing to give back."""

    def abandon(self) -> None:
        """Nothing to give back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class QuietView(_Closing):
    """Shows nothing."""

    def show(self, status: RunStatus) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""


class LineView(_Closing):
    """Prints a log line when the state changes and every few seconds in between; what the cluster
    moved, once and at once.
    """

    def __init__(self, stream: TextIO, every_s: float = LINE_EVERY_S) -> None:
        self._stream, self._every_s = stream, every_s
        self._shown_s, self._state, self._moved = 0.0, "", ""

    def show(self, status: RunStatus) -> None:
        if status.moved != self._moved:
            self._moved = status.moved
            self.say(status.moved)
        now_s = time.monotonic()
        if status.state == self._state and now_s - self._shown_s < self._every_s:
            return
        self._shown_s, self._state = now_s, status.state
        self.say(log_line(status))

    def say(self, text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, file=self._stream, flush=True)


class LiveView(_Closing):
    """Keeps a table up to date in place.  It appears with the first status; what is said or logged
    to stderr goes above it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream)
        self._live: Live | None = None

    def show(self, status: RunStatus) -> None:
        if self._live is None:
            # stdout may carry the application's output, perhaps into a file: it stays untouched
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False)
            self._live.start()
        self._live.update(live_table(status), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def abandon(self) -> None:
        # past rich and past the stream's buffer: the signal may have interrupted either of them in
        # mid-write
        if self._live is not None:
            os.write(self._stream.fileno(), _CURSOR_ON)
