"""A run's status as a table for terminals.

Where it runs: driver, and the terminals of ``wallaroo status`` and ``top``.  All functions but
``table_console`` are pure: a `RunStatus` in, something to print out.
"""

from __future__ import annotations

import sys

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from wallaroo.cli.run import text
from wallaroo.cli.terminal.formatting import (
    counted,
    duration,
    group_ranges,
    milliseconds,
    size,
    spread,
)
from wallaroo.monitoring.metrics.status import (
    ErrorCount,
    PipelineLatency,
    RunState,
    RunStatus,
    SinkLine,
    SourceStatus,
    TimeStatus,
    WorkerStatus,
)
from wallaroo.monitoring.status_api.figures import notes

Row = dict[str, str | Text]  # by column

WORKERS_SHOWN = 16  # a larger table would push everything else off the screen
WIDTH = 120  # if the output is not a terminal
LAGS_SHOWN = 6  # partitions of a source
_STATE_STYLES = {
    RunState.STARTING: "yellow",
    RunState.STANDBY: "cyan",
    RunState.RUNNING: "green",
    RunState.STOPPING: "yellow",
    RunState.STOPPED: "bold",
    RunState.FINISHED: "bold green",
    RunState.FAILED: "bold red",
}


def table_console() -> Console:
    """Return a console on standard output, wide enough for tables without a terminal."""
    width = None if sys.stdout.isatty() else WIDTH
    return Console(file=sys.stdout, width=width, highlight=False)


def live_table(
    status: RunStatus, workers_from: int = 2, workers_shown: int = WORKERS_SHOWN
) -> RenderableType:
    """Return a run's status on one screen, with ``workers_from`` to ``workers_shown`` workers."""
    parts: list[RenderableType] = [_headline(status), _rates(status)]
    if status.standby is not None:
        parts.append(Text(f" {status.standby.words}"))
    if status.sources:
        parts.append(_sources(status.sources))
    if status.sinks:
        parts.append(_sinks(status.sinks))
    if status.latency:
        parts.append(_latencies(status.latency))
    if status.errors:
        parts.append(_errors(status.errors))
    parts += [Text(f" left out in {losses.words}") for losses in status.losses]
    parts += [Text(f" state of {each.words}") for each in status.upgrades if not each.is_done]
    if len(status.workers) >= workers_from:
        parts.append(_workers(status.workers, workers_shown))
    parts += [Text(f" {line}") for line in text.lag_lines(status, LAGS_SHOWN)]
    if workers_from == 1:
        parts += [Text(f" {line}") for line in text.process_lines(status)]
    if held := text.held_words(status):
        parts.append(Text(f" {held}"))
    parts += [Text(f" {note}", style="yellow") for note in notes(status)]
    if status.workers_killed:
        parts.append(Text(f" {text.killed_words(status)}", style="yellow"))
    if status.moved:
        parts.append(Text(f" {status.moved}"))
    parts += [Text(f" {line}") for line in text.ingress_lines(status)]
    if status.waiting_for:
        parts.append(Text(f" waiting for {status.waiting_for}", style="yellow"))
    parts.append(Text(f" checkpoint {text.checkpoint_words(status)}", style="dim"))
    if status.dashboard:
        hint = "`wallaroo status --link`: with its token"
        parts.append(Text(f" dashboard {status.dashboard} ({hint})", style="dim"))
    return Group(*parts)


def _headline(status: RunStatus) -> Text:
    line = Text(f" {status.application} ", style="bold")
    line.append(status.state, style=_STATE_STYLES[status.state])
    if status.doing:
        line.append(f": {status.doing}", style="not bold")
    line.append(
        f"  {duration(status.elapsed_s)}, {counted(status.batches, 'batch', 'batches')}, "
        f"{counted(status.tasks, 'task')}",
        style="not bold",
    )
    return line


def _rates(status: RunStatus) -> RenderableType:
    events, size_bytes = text.backlog(status)
    row: Row = {
        "in/s": f"{status.events_in_per_s:,.0f}",
        "done/s": f"{status.events_done_per_s:,.0f}",
        "out/s": f"{status.outputs_per_s:,.0f}",
        "backlog": f"{events:,} ({size(size_bytes)})",
        "batch": milliseconds(status.batch_ms),
        "median": milliseconds(status.batch_ms_median),
    }
    return _Fitting([row], droppable=("median", "batch", "out/s"))


def _sources(sources: tuple[SourceStatus, ...]) -> RenderableType:
    rows: list[Row] = [
        {
            "source": Text(source.name),
            "at": Text(source.label),
            "connections": f"{source.connections}",
            "events in": f"{source.events_in:,}",
            "done": f"{source.events_done:,}",
            "backlog": f"{source.backlog_events:,}",
            **({"watermark": _watermark(source.time)} if source.time is not None else {}),
            "": Text(text.source_note(source), style="yellow"),
        }
        for source in sources
    ]
    return _Fitting(
        rows,
        words=("source", ""),
        whole=("at",),
        droppable=("connections", "done", "at", "watermark"),
    )


def _watermark(time: TimeStatus) -> str:
    """Format a watermark's lag behind the clock, and the partition that holds it back."""
    if time.is_idle:
        return "idle"
    lag = "none yet" if time.lag_s is None else f"{duration(max(0.0, time.lag_s))} behind"
    return " ".join(filter(None, (lag, time.held_by and f"({time.held_by})")))


class _Fitting:
    """A table that fits the terminal by leaving out ``droppable`` columns."""

    def __init__(
        self,
        rows: list[Row],
        words: tuple[str, ...] = (),
        whole: tuple[str, ...] = (),
        droppable: tuple[str, ...] = (),
    ) -> None:
        self._rows = rows
        self._words = words
        self._whole = whole
        self._droppable = droppable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(self._rows[0])
        for dropped in (name for name in self._droppable if name in self._rows[0]):
            if sum(map(self._least, columns)) <= options.max_width:
                break
            columns.remove(dropped)
        yield self._table(columns)

    def _least(self, column: str) -> int:
        """Return the number of characters a column needs, with the space around it."""
        cells = [column, *(str(row[column]) for row in self._rows)]
        words = (word for cell in cells for word in cell.split())
        return max(map(cell_len, words if column in self._words else cells), default=0) + 3

    def _table(self, columns: list[str]) -> Table:
        words = tuple(n for n, column in enumerate(columns) if column in self._words)
        table = empty_table(*columns, words=words)
        for column in table.columns:
            if column.header in self._whole:
                column.justify = "left"
        for row in self._rows:
            table.add_row(*(row[column] for column in columns))
        return table


def _sinks(sinks: tuple[SinkLine, ...]) -> RenderableType:
    rows: list[Row] = [
        {
            "sink": Text(sink.name),
            "at": Text(sink.label),
            "outputs": f"{sink.outputs:,}",
            "to send": size(sink.pending_bytes),
            "waiting for": Text(sink.waiting_for, style="yellow"),
        }
        for sink in sinks
    ]
    return _Fitting(rows, words=("sink", "waiting for"), whole=("at",), droppable=("to send", "at"))


def _latencies(latency: tuple[PipelineLatency, ...]) -> RenderableType:
    rows: list[Row] = [
        {
            "latency of": Text(seen.pipeline),
            "p50": milliseconds(seen.p50_ms),
            "p95": milliseconds(seen.p95_ms),
            "p99": milliseconds(seen.p99_ms),
            "p99.9": milliseconds(seen.p999_ms),
            "max": milliseconds(seen.max_ms),
            "events": f"{seen.count:,}",
        }
        for seen in latency
    ]
    return _Fitting(rows, whole=("latency of",), droppable=("p95", "p99.9", "events"))


def _errors(errors: tuple[ErrorCount, ...]) -> Table:
    table = empty_table("failed in", "skipped", "dead letters", "last", words=(0, 3))
    for error in errors:
        table.add_row(
            Text(error.step),
            f"{error.skipped:,}",
            f"{error.dead_lettered:,}",
            Text(error.last, style="yellow"),
        )
    return table


def _copied(worker: WorkerStatus) -> str:
    return f" + {len(worker.replica_groups)} copied" if worker.replica_groups else ""


def _workers(workers: tuple[WorkerStatus, ...], shown: int) -> Table:
    """Return the table of workers and the key groups whose state is in their views."""
    table = empty_table(
        "worker", "host", "cores", "tasks", "key groups", "state in its view", words=(0, 1, 5)
    )
    for worker in workers[:shown]:
        ranges = Text(group_ranges(worker.key_groups))
        table.add_row(
            Text(worker.name),
            Text(worker.host),
            f"{worker.cores}",
            f"{worker.tasks}",
            f"{len(worker.key_groups)}{_copied(worker)}",
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


def empty_table(*columns: str, words: tuple[int, ...] = ()) -> Table:
    """Return an empty table; columns of ``words`` are left-aligned and wrap, numbers not."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=True, header_style="dim")
    for number, column in enumerate(columns):
        is_words = number in words
        table.add_column(
            column, justify="left" if is_words else "right", no_wrap=not is_words, overflow="fold"
        )
    return table
