"""A run's status as a log line, a summary or a table.

Where it runs: driver.  All functions are pure: a `RunStatus` in, something to print out.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from wallaroo.cli.terminal.formatting import counted, duration, milliseconds, size, spread
from wallaroo.monitoring.metrics.status import (
    BackfillStatus,
    ErrorCount,
    PipelineLatency,
    ProcessStatus,
    RunState,
    RunStatus,
    SourceStatus,
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


def backlog(status: RunStatus) -> tuple[int, int]:
    """Return the events and bytes that wait in all sources."""
    return sum(source.backlog_events for source in status.sources), sum(
        source.backlog_bytes for source in status.sources
    )


def checkpoint_words(status: RunStatus) -> str:
    """Return the checkpoint's folder and what keeps it, in words."""
    if not status.checkpoint:
        return "none"
    if not status.is_durable:
        return f"{status.checkpoint} (temporary; keep one with --checkpoint DIR)"
    copy = f", copy at {status.replica.place}" if status.replica is not None else ""
    level = f" (durability {status.durability}{copy})" if status.durability else ""
    return f"{status.checkpoint}{level}"


def source_note(source: SourceStatus) -> str:
    """Return the state of a source, in words; "" if it just reads."""
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


def log_line(status: RunStatus) -> str:
    """Return the key figures with units on one line, for logs."""
    events, size_bytes = backlog(status)
    facts = [
        f"{status.application} {status.state}{f': {status.doing}' if status.doing else ''} "
        f"{duration(status.elapsed_s)}"
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
        f"source {source.name} {source_note(source)}"
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
    events, size_bytes = backlog(status)
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
    left = backlog(status)[0]
    if left:
        lines.append(f"  left over    {left:,} events, not yet processed")
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
        lines.append(f"  killed       {killed_words(status)}")
    if status.moved:
        lines.append(f"  last move    {status.moved}")
    lines += [f"  began        {begun}", f"  checkpoint   {checkpoint_words(status)}"]
    return "\n".join(lines + _latency_lines(status.latency))


def killed_words(status: RunStatus) -> str:
    """Return the number of worker processes that were killed or crashed, in words."""
    what = "process was" if status.workers_killed == 1 else "processes were"
    return f"{status.workers_killed} worker {what} killed or crashed; the tasks ran again"


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
