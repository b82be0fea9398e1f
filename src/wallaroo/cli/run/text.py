"""A run's status as a table, a log line or a summary.

Where it runs: driver.  All functions are pure: a `RunStatus` in, something to print out.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from wallaroo.cli.terminal.formatting import (
    counted,
    duration,
    group_ranges,
    milliseconds,
    size,
    spread,
)
from wallaroo.monitoring.metrics.status import (
    BackfillStatus,
    ErrorCount,
    PipelineLatency,
    ProcessStatus,
    RunState,
    RunStatus,
    SinkLine,
    SourceStatus,
    TimeStatus,
    WorkerStatus,
)
from wallaroo.monitoring.status_api.figures import lasting_notes, notes

# The figures of a status that each entry of the log has.
_LOGGED = (
    "events_in",
    "events_done",
    "outputs",
    "events_in_per_s",
    "events_done_per_s",
    "outputs_per_s",
    "batches",
    "last_batch",
    "batch_ms",
    "batch_ms_median",
    "waiting_for",
    "workers_killed",
)
Row = dict[str, str | Text]  # by column

WORKERS_SHOWN = 16  # a larger table would push everything else off the screen
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


# -- words


def _backlog(status: RunStatus) -> tuple[int, int]:
    return sum(source.backlog_events for source in status.sources), sum(
        source.backlog_bytes for source in status.sources
    )


def _checkpoint(status: RunStatus) -> str:
    if not status.checkpoint:
        return "none"
    if not status.is_durable:
        return f"{status.checkpoint} (temporary; keep one with --checkpoint DIR)"
    copy = f", copy at {status.replica.place}" if status.replica is not None else ""
    level = f" (durability {status.durability}{copy})" if status.durability else ""
    return f"{status.checkpoint}{level}"


def _source_note(source: SourceStatus) -> str:
    if source.backfill is not None:
        return _backfill_words(source.backfill)
    if source.is_paused:
        return "paused: backlog at its bound"
    return "ended" if source.is_ended else ""


def _backfill_words(part: BackfillStatus) -> str:
    if part.share is None:
        return f"backfill, {part.events_done:,} events"
    ends = f", {duration(part.ends_in_s)} left" if part.ends_in_s is not None else ""
    return f"backfill {int(100 * part.share)} %{ends}"


def ingress_lines(status: RunStatus) -> list[str]:
    """Return a line for each ingress on another host."""
    lines = []
    for one in status.ingresses:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.since))
        state = f"joined since {since}" if one.is_there else f"DISCONNECTED since {since}"
        lines.append(
            f"ingress '{one.name}' {state}, {one.connections} clients, {one.backlog_events:,} "
            f"events not processed"
        )
    return lines


# -- the live table


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
    parts += [Text(f" {line}") for line in lag_lines(status, LAGS_SHOWN)]
    if workers_from == 1:
        parts += [Text(f" {line}") for line in process_lines(status)]
    if held := held_words(status):
        parts.append(Text(f" {held}"))
    parts += [Text(f" {note}", style="yellow") for note in notes(status)]
    if status.workers_killed:
        parts.append(Text(f" {_killed_words(status)}", style="yellow"))
    if status.moved:
        parts.append(Text(f" {status.moved}"))
    parts += [Text(f" {line}") for line in ingress_lines(status)]
    if status.waiting_for:
        parts.append(Text(f" waiting for {status.waiting_for}", style="yellow"))
    parts.append(Text(f" checkpoint {_checkpoint(status)}", style="dim"))
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
    events, size_bytes = _backlog(status)
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
            "": Text(_source_note(source), style="yellow"),
        }
        for source in sources
    ]
    return _Fitting(
        rows,
        words=("source", ""),
        whole=("at",),
        droppable=("connections", "done", "at", "watermark"),
    )


def lag_lines(status: RunStatus, shown: int) -> list[str]:
    """Return, for each source with partitions that lag, its group and its largest lags."""
    lines = []
    for source in status.sources:
        lags = sorted(source.lags.items(), key=lambda item: -item[1])
        named = [f"{partition} {lag:,}" for partition, lag in lags[:shown] if lag]
        if not named:
            continue
        group = f", group {source.group}" if source.group else ""
        left = sum(1 for _, lag in lags[shown:] if lag)
        more = f", {left} more" if left else ""
        lines.append(f"lag of {source.name}{group}: {', '.join(named)}{more}")
    return lines


def process_lines(status: RunStatus) -> list[str]:
    """Return the processes on the driver's machine by name: number, memory, cores in use."""
    named: dict[str, list[ProcessStatus]] = {}
    for process in status.processes:
        named.setdefault(process.name, []).append(process)
    words = [
        f"{counted(len(some), name) if len(some) > 1 else name} "
        f"{size(sum(one.resident_bytes for one in some))}, {sum(one.cpu for one in some):.1f} cores"
        for name, some in named.items()
    ]
    return [f"processes: {'; '.join(words)}"] if words else []


def _watermark(time: TimeStatus) -> str:
    """Format a watermark's lag behind the clock, and the partition that holds it back."""
    if time.is_idle:
        return "idle"
    lag = "none yet" if time.lag_s is None else f"{duration(max(0.0, time.lag_s))} behind"
    return " ".join(filter(None, (lag, time.held_by and f"({time.held_by})")))


def held_words(status: RunStatus) -> str:
    """Return the source and partition that holds back event time; empty without event time."""
    times = [step.time for step in status.step_times]
    if not times:
        return ""
    if all(time.is_idle for time in times):
        return "event time: all sources are idle, so it follows the clock"
    first = times[0]
    if first.lag_s is None or not first.held_by:
        return ""
    lag = duration(max(0.0, first.lag_s))
    return f"event time is held back by {first.held_by}: {lag} behind the clock"


class _Fitting:
    """A table that fits the terminal by leaving out ``droppable`` columns, in their order."""

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


# -- text


def log_line(status: RunStatus) -> str:
    """Return the key figures with units on one line, for logs."""
    events, size_bytes = _backlog(status)
    facts = [
        f"{status.application} {status.state}{f': {status.doing}' if status.doing else ''} "
        f"{duration(status.elapsed_s)}",
    ]
    if status.standby is not None:
        return f"{status.application} {status.standby.words}"
    if status.state is RunState.STARTING:
        return facts[0]
    facts += [
        f"in {status.events_in_per_s:,.0f}/s, done {status.events_done_per_s:,.0f}/s, out "
        f"{status.outputs_per_s:,.0f}/s",
        f"backlog {events:,} events ({size(size_bytes)})",
        f"{counted(status.batches, 'batch', 'batches')}, last {milliseconds(status.batch_ms)}, "
        f"median {milliseconds(status.batch_ms_median)}",
    ]
    facts += [
        f"latency of {seen.pipeline} p50 {milliseconds(seen.p50_ms)}, p99 "
        f"{milliseconds(seen.p99_ms)}"
        for seen in status.latency
    ]
    facts += [
        f"source {source.name} {_source_note(source)}"
        for source in status.sources
        if source.is_paused or source.backfill is not None
    ]
    facts += [_error_words(error) for error in status.errors]
    facts += [f"left out in {losses.words}" for losses in status.losses]
    facts += [f"state of {each.words}" for each in status.upgrades if not each.is_done]
    facts += lasting_notes(status)
    if len(status.workers) > 1:
        facts.append(
            f"{len(status.workers)} workers: "
            f"{spread([len(worker.key_groups) for worker in status.workers])}"
        )
    if status.waiting_for:
        facts.append(f"waiting for {status.waiting_for}")
    return " | ".join(facts)


def log_facts(status: RunStatus) -> dict[str, Any]:
    """Return the figures of a log line by name, as `wallaroo status --json` names them."""
    events, size_bytes = _backlog(status)
    return {
        "application": status.application,
        "state": status.state.value,
        "doing": status.doing,
        "elapsed_s": round(status.elapsed_s, 3),
        **{name: getattr(status, name) for name in _LOGGED},
        "backlog_events": events,
        "backlog_bytes": size_bytes,
        "latency": [asdict(seen) for seen in status.latency],
        "errors": [asdict(error) for error in status.errors],
        "left_out": {losses.step: dict(losses.counts) for losses in status.losses},
        "upgrades": [asdict(each) for each in status.upgrades],
        "workers": len(status.workers),
        "notes": notes(status),
    }


def _error_words(error: ErrorCount) -> str:
    """Return a step's numbers of failed events, skipped and dead-lettered, in words."""
    said = [
        f"{count:,} {what}"
        for count, what in ((error.skipped, "skipped"), (error.dead_lettered, "dead letters"))
        if count
    ]
    return f"failed in {error.step}: {', '.join(said)}"


def summary(status: RunStatus) -> str:
    """Return a run's final summary, several lines of plain text; one if it ran no batch."""
    if not (status.running_at or status.batches):
        return (
            f"{status.application}: {status.state} after {duration(status.elapsed_s)}, before the "
            "first batch"
        )
    # the start of Spark does not count for the application's rates
    start_s = max(status.running_at - status.started_at, 0.0)
    seconds = max(status.elapsed_s - start_s, 1e-9)
    begun = (
        f"after batch {status.recovered_batch} of its checkpoint"
        if status.recovered_batch >= 0
        else "empty"
    )
    lines = [
        f"{status.application}: {_end_of(status)} after {duration(status.elapsed_s)}, "
        f"{counted(status.batches, 'batch', 'batches')}"
        f" (median {milliseconds(status.batch_ms_median)})",
        f"  events in    {status.events_in:,}",
        f"  events done  {status.events_done:,}  ({status.events_done / seconds:,.0f}/s while "
        "running)",
        f"  outputs      {status.outputs:,}  ({status.outputs / seconds:,.0f}/s)",
    ]
    left = _backlog(status)[0]
    if left:
        lines.append(f"  left over    {left:,} events in the spool, not yet processed")
    lines += [
        f"  waiting for  {sink.waiting_for or sink.label}: {size(sink.pending_bytes)} of "
        f"{sink.name} not sent"
        for sink in status.sinks
        if sink.pending_bytes
    ]
    lines += [f"  {_error_words(error)}; last at {error.last}" for error in status.errors]
    lines += [f"  left out     in {losses.words}" for losses in status.losses]
    lines += [
        f"  state        {each.words}" for each in status.upgrades if each.upgraded or each.left
    ]
    lines += [f"  note         {note}" for note in notes(status)]
    lines += [f"  damaged      {damaged}" for damaged in status.damaged]
    if status.workers_killed:
        lines.append(f"  killed       {_killed_words(status)}")
    if status.moved:
        lines.append(f"  last move    {status.moved}")
    lines += [f"  began        {begun}", f"  checkpoint   {_checkpoint(status)}"]
    return "\n".join(lines + _latency_lines(status.latency))


def _killed_words(status: RunStatus) -> str:
    what = "process was" if status.workers_killed == 1 else "processes were"
    return f"{status.workers_killed} worker {what} killed from outside; the tasks ran again"


def _end_of(status: RunStatus) -> str:
    return (
        "finished (all input is processed)" if status.state is RunState.FINISHED else status.state
    )


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
