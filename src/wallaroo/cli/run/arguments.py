"""The options of ``wallaroo run``, and their ``RunOptions``.

Where it runs: driver.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wallaroo.api.application import Application
from wallaroo.cli.terminal.parser import seconds, whole
from wallaroo.dataflow.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.durable.folders import is_store_url
from wallaroo.durable.levels import Durability
from wallaroo.errors import PipelineError, Problem
from wallaroo.monitoring.status_api.access import TOKEN_VARIABLE
from wallaroo.network.reachability import PORT_MAX, parse_address
from wallaroo.network.tls import TLS
from wallaroo.options import (
    FORK_OF_NOTHING,
    FRESH_OR_TAKEN_OVER,
    LATENCY_MS,
    SAVEPOINT_ALONE,
    STANDBY_AFTER_S,
    STANDBY_ALONE,
    STANDBY_LEAST_S,
    STANDBY_OF_NOTHING,
    STANDBY_TOO_SOON,
    STORE_LATENCY_MS,
    HostKind,
    Latency,
    RunOptions,
)
from wallaroo.sources.interface import FedBy
from wallaroo.state.log.layout import FORMAT

UNTIL_NOW = (
    "end when what the sources hold at the start is processed (Kafka, files, tables, streams, "
    "queues); sources that keep nothing, such as TCP and HTTP, end at once"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that run an application."""
    _add_spark(parser.add_argument)
    _add_checkpoint(parser.add_argument)
    _add_batches(parser.add_argument)
    _add_pace(parser.add_argument)
    _add_logs(parser.add_argument)
    _add_access(parser.add_argument)
    _add_output(parser.add_argument)


def _add_spark(add: Callable[..., Any]) -> None:
    add("--master", default="local[*]",
        help=(
            "Spark's master: local[N], spark://HOST:PORT, yarn, k8s://... (default: %(default)s, "
            "all cores of this machine)"
        ))  # fmt: skip
    add(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated",
    )
    add(
        "--packages",
        metavar="COORDINATES",
        help=(
            "jars that Spark, and the Sparks of sources, fetch and load, as spark-submit does: "
            "GROUP:ARTIFACT:VERSION, with commas between several"
        ),
    )


def checkpoint_place(text: str) -> Path | str:
    """Return a checkpoint's folder, or the URL of one in an object store."""
    return text if is_store_url(text) else Path(text)


def _add_checkpoint(add: Callable[..., Any]) -> None:
    add(
        "--checkpoint",
        type=checkpoint_place,
        metavar="DIR|URL",
        help="where to keep state and progress: a folder, or a place in an object store "
        "(s3://BUCKET/PATH, gs://, az://) (default: a temporary directory)",
    )
    add("--fresh", action="store_true", help="delete the checkpoint's contents and start empty")
    add(
        "--from-savepoint",
        type=checkpoint_place,
        metavar="DIR|URL",
        help="start the checkpoint, which must be new, from a savepoint (wallaroo state save); a "
        "restart with this option continues",
    )
    add(
        "--fork",
        action="store_true",
        help="with --from-savepoint: run beside the saved application, under a separate identity, "
        "into other sinks",
    )
    _add_standby(add)
    add(
        "--allow-incompatible",
        action="store_true",
        help="continue with a changed application, dropping state that no longer fits",
    )
    add(
        "--durability",
        type=_durability,
        action="append",
        default=[],
        metavar="[SOURCE=]LEVEL",
        help="what acknowledgements, commits and output wait for: memory, disk (default with a "
        "folder), replicated (this disk and a second host's), store (default with an object "
        "store); may be repeated for sources whose input has another level",
    )
    add(
        "--replica",
        type=_address_as("10.0.0.2:7200"),
        metavar="HOST:PORT",
        help="with --durability replicated: where `wallaroo replica` keeps the copy",
    )
    add(
        "--replica-key",
        type=Path,
        metavar="FILE",
        help="with --replica: a copy of the key file in that replica's folder",
    )
    add(
        "--retain-commits",
        type=whole(1),
        default=16,
        metavar="N",
        help="number of commits kept as starting points (default: %(default)s)",
    )
    add("--yes", action="store_true", help="with --fresh: do not ask")


def _add_standby(add: Callable[..., Any]) -> None:
    """Add the options for taking over from another run."""
    add(
        "--take-over",
        action="store_true",
        help="continue in place of a run that holds the checkpoint and hangs or is unreachable; "
        "that run commits and sends nothing more",
    )
    add(
        "--standby",
        action="store_true",
        help="wait, warmed up, until the leading run ends without a stop or shows no sign of life, "
        "then continue in its place",
    )
    add(
        "--standby-after",
        type=_standby_after,
        default=STANDBY_AFTER_S,
        metavar="SECONDS",
        help="with --standby: take over a leader that has shown no sign of life for this long "
        "(default: %(default)s)",
    )


def _add_batches(add: Callable[..., Any]) -> None:
    """Add the options for input and the size of batches."""
    add("--acknowledged", type=source_port, action="append", default=[], metavar="NAME=PORT",
        help=(
            "TCP source NAME also listens on PORT, for senders that want acknowledgements; may be "
            "repeated"
        ))  # fmt: skip
    add("--tasks", type=whole(1), metavar="N", help="tasks per stage (default: one per core)")
    add(
        "--min-workers",
        type=whole(1),
        default=1,
        metavar="N",
        help="on a cluster: start once N workers have joined (default: %(default)s)",
    )
    add(
        "--replicas",
        type=int,
        choices=(0, 1),
        default=0,
        help=(
            "on a cluster with --host resident: 1 keeps a current copy of each worker's state on "
            "another one, which continues at once if it is lost (default: %(default)s)"
        ),
    )
    add(
        "--batch-time",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="how long a batch should take (default: %(default)s)",
    )
    add(
        "--latency",
        type=latency_target,
        metavar="TARGET",
        help=(
            "milliseconds that an event may take from receipt to results: commits are as "
            f"rare as that allows (default: {LATENCY_MS:g} with --host resident, "
            f"{STORE_LATENCY_MS:g} with a checkpoint in an object store, no target with "
            "micro-batch; the former words low and normal are accepted)"
        ),
    )
    add(
        "--host",
        choices=tuple(kind.value for kind in HostKind),
        help=(
            "resident: workers take small batches as input comes; micro-batch: each batch is a job "
            "of Spark (default: resident)"
        ),
    )
    add(
        "--key-groups",
        type=whole(1),
        default=KEY_GROUPS_DEFAULT,
        metavar="N",
        help="number of key groups, the units in which state is distributed (default: %(default)s)",
    )


def _add_pace(add: Callable[..., Any]) -> None:
    """Add the options for how fast and how far input is read."""
    add(
        "--speed",
        type=_speed,
        metavar="FACTOR",
        help=(
            "replay recorded input by its event times: 1x at their own pace, 10x ten times faster "
            "(default: as fast as it can be read)"
        ),
    )
    add(
        "--rate-limit",
        type=_rate,
        metavar="N",
        help="events per second at most from the first part of a chain",
    )
    add("--until-now", action="store_true", help=UNTIL_NOW)


def _add_logs(add: Callable[..., Any]) -> None:
    add(
        "--log",
        choices=("text", "json"),
        default="text",
        help="form of the log on standard error: text lines, or one JSON line per entry without "
        "a table (default: %(default)s)",
    )
    levels = ("debug", "info", "warning", "error", "off")
    add(
        "--log-level",
        choices=levels,
        default="error",
        help="level of Spark's log (default: %(default)s)",
    )
    add(
        "--app-log-level",
        choices=levels,
        default="info",
        help="level of the application's own logging, if it configures none (default: %(default)s)",
    )


def _add_access(add: Callable[..., Any]) -> None:
    """Add the options for access to the status and to input."""
    add(
        "--ingress-listen",
        type=_address_as("10.0.0.1:7300"),
        metavar="HOST:PORT",
        help="where `wallaroo ingress` on other hosts joins, to receive TCP sources there as well; "
        "with --checkpoint, whose ingress.key admits them",
    )
    add("--status", type=status_address, default=("127.0.0.1", 0), metavar="HOST:PORT",
        help=(
            "address for `wallaroo status` and HTTP clients; 'off' for none (default: any free "
            "port of 127.0.0.1)"
        ))  # fmt: skip
    add(
        "--status-token",
        default=os.environ.get(TOKEN_VARIABLE, ""),
        metavar="TOKEN",
        help=(
            f"what clients of --status must present (default: ${TOKEN_VARIABLE}, which other users "
            "of this machine cannot see; without both, a fresh one where the address is not "
            "loopback)"
        ),
    )
    add(
        "--status-cert",
        metavar="FILE",
        help="PEM certificate of --status, which answers https:// only then; with --status-key",
    )
    add("--status-key", metavar="FILE", help="the key of --status-cert, PEM")
    add(
        "--tls-cert",
        metavar="FILE",
        help="on a cluster: PEM certificate with which the driver encrypts the input that workers "
        "on other hosts read and, with --host resident, all that tasks send; with --tls-key",
    )
    add("--tls-key", metavar="FILE", help="the key of --tls-cert, PEM")


def _add_output(add: Callable[..., Any]) -> None:
    """Add the options for dead letters and for the display."""
    add(
        "--dead-letters",
        type=Path,
        metavar="PATH",
        help="the file for events that failed in steps with on_error='dead-letter'",
    )
    add("--quiet", action="store_true", help="print errors only")
    add(
        "--no-live",
        action="store_true",
        help="print log lines instead of the table, on a terminal as well",
    )
    add("--summary", type=Path, metavar="FILE", help="write the last status to this file, as JSON")


def source_port(text: str) -> tuple[str, int]:
    """Parse the name of a source and a port for it."""
    name, _, port = text.rpartition("=")
    if not name or not port.isdecimal() or int(port) > PORT_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form NAME=PORT, such as Orders=7110"
        )
    return name, int(port)


def _durability(text: str) -> tuple[str, Durability]:
    source, _, level = text.rpartition("=")
    if level not in tuple(Durability):
        names = ", ".join(Durability)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a level of durability: give one of {names}, or SOURCE=LEVEL, such as "
            f"Orders=disk"
        )
    return source, Durability(level)


def _setting(text: str) -> tuple[str, str]:
    key, is_there, value = text.partition("=")
    if not key or not is_there:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form KEY=VALUE, such as spark.executor.memory=2g"
        )
    return key, value


def status_address(text: str) -> tuple[str, int] | None:
    """Return the host and port of a status server; None if there is to be none."""
    address = None if text == "off" else parse_address(text)
    if address is None and text != "off":
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither HOST:PORT, such as 127.0.0.1:7200, nor 'off'"
        )
    return address


def _address_as(example: str) -> Callable[[str], tuple[str, int]]:
    """Return the parser of an address; its error shows an example."""

    def parse(text: str) -> tuple[str, int]:
        address = parse_address(text)
        if address is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as {example}")
        return address

    return parse


def _standby_after(text: str) -> float:
    after_s = seconds(text)
    if after_s < STANDBY_LEAST_S:
        raise argparse.ArgumentTypeError(f"{text} is too short. {STANDBY_TOO_SOON}")
    return after_s


def latency_target(text: str) -> Latency | float:
    """Parse a target in milliseconds, or a former mode."""
    if text in tuple(Latency):
        return Latency(text)
    what = "a target: give milliseconds above 0, such as 50"
    return _above_zero(text, text.removesuffix("ms"), what)


def _speed(text: str) -> float:
    return _above_zero(text, text.removesuffix("x"), "a speed: give 1x, 10x or 0.5x, for example")


def _rate(text: str) -> float:
    what = "a rate: give events per second, such as 5000"
    return _above_zero(text, text.replace(",", ""), what)


def _above_zero(text: str, number: str, what: str) -> float:
    """Parse the number of an option's text; ``what`` it is and has to be."""
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def _tls(certificate: str | None, key: str | None, options: str) -> TLS | None:
    if (certificate is None) != (key is None):
        problem = Problem("wallaroo run", "", f"{options} belong together.", "Give both.")
        raise PipelineError(problem)
    return TLS(certificate, key or "") if certificate else None


def check_until_now(application: Application) -> None:
    """Raise PipelineError if every source of an application only holds data while it runs."""
    configs = [source.config for source in application.plan.sources]
    if all(config.fed_by is FedBy.CLIENTS for config in configs):
        what = "every source is fed by clients that connect later, so nothing is there now."
        fix = "Leave out --until-now, and stop the run once the clients have sent all."
        raise PipelineError(Problem("--until-now", "", what, fix))


def _check_savepoint(options: argparse.Namespace) -> None:
    what = ""
    if options.fork and options.from_savepoint is None:
        what = FORK_OF_NOTHING
    elif options.from_savepoint is not None and (options.checkpoint is None or options.fresh):
        what = SAVEPOINT_ALONE
    elif (
        options.from_savepoint is not None
        and options.standby
        and isinstance(options.checkpoint, Path)
    ):
        # a service's command may keep both options once the checkpoint has begun
        what = "" if (options.checkpoint / FORMAT).exists() else STANDBY_OF_NOTHING
    if what:
        raise PipelineError(Problem("wallaroo run", "", "--from-savepoint, --fork:", what))


def run_options(options: argparse.Namespace) -> RunOptions:
    """Return the ``RunOptions`` of a command line.  Raises PipelineError."""
    if options.host and options.latency in tuple(Latency):
        what = f"--latency {options.latency} names a host, and --host {options.host} does, too."
        problem = Problem("wallaroo run", "", what, "Give --latency in milliseconds, such as 50.")
        raise PipelineError(problem)
    if options.fresh and options.take_over:
        problem = Problem("wallaroo run", "", "--fresh and --take-over:", FRESH_OR_TAKEN_OVER)
        raise PipelineError(problem)
    _check_savepoint(options)
    if options.standby and (
        options.fresh
        or options.take_over
        or options.until_now
        or not isinstance(options.checkpoint, Path)
    ):
        raise PipelineError(
            Problem("wallaroo run", "", "--standby with other options:", STANDBY_ALONE)
        )
    levels = dict(options.durability)
    durability = levels.pop("", None)
    try:
        return _run_options(options, durability, tuple(levels.items()))
    except ValueError as error:  # levels or ingresses that do not go with the other options
        names = "--durability:" if options.ingress_listen is None else "--ingress-listen:"
        raise PipelineError(Problem("wallaroo run", "", names, str(error))) from error


def _run_options(
    options: argparse.Namespace,
    durability: Durability | None,
    source_durability: tuple[tuple[str, Durability], ...],
) -> RunOptions:
    names = {field.name for field in dataclasses.fields(RunOptions)}
    same: dict[str, Any] = {name: value for name, value in vars(options).items() if name in names}
    differing: dict[str, Any] = {
        "is_fresh": options.fresh,
        "is_taking_over": options.take_over,
        "is_fork": options.fork,
        "standby_after_s": options.standby_after if options.standby else None,
        "batch_time_s": options.batch_time,
        "durability": durability,
        "source_durability": source_durability,
        "ack_ports": tuple(options.acknowledged),
        "spark_conf": tuple(options.conf),
        "status_address": options.status,
        "status_tls": _tls(
            options.status_cert, options.status_key, "--status-cert and --status-key"
        ),
        "tls": _tls(options.tls_cert, options.tls_key, "--tls-cert and --tls-key"),
        "module_paths": (str(Path(options.app).resolve().parent),),
    }
    return RunOptions(**(same | differing))
