"""``wallaroo dev APP``: a run in one process, reloaded when files change.

Where it runs: a terminal.  No Spark and no other process: breakpoints, prints and debuggers work.

Outputs of all sinks are printed, not sent; state lives in memory and starts empty at each reload.
A reload replaces the process's program (exec), so nothing of the old modules is left.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from wallaroo.api.application import Application
from wallaroo.cli.application.arguments import EPILOG, add_app, split_args, trailing_parser
from wallaroo.cli.application.hints import call_chain
from wallaroo.cli.application.loading import load_application
from wallaroo.errors import PeerError, WallarooError
from wallaroo.ingress.connection import Connection, ReadBuffer
from wallaroo.protocols.framing import FrameError, text_hint
from wallaroo.sources.feed import Feed
from wallaroo.sources.interface import FedBy, SourceConfig
from wallaroo.sources.listening import Listening
from wallaroo.sources.log import LogContext, SourceLog
from wallaroo.testing.local_runner.runner import Wire
from wallaroo.testing.run import LocalApplication

POLL_S = 0.3  # between two checks of the files
EVENTS_MAX = 4096  # per file and batch, roughly


def add_parser(subparsers: Any) -> None:
    """Add ``dev`` to the commands."""
    parser = subparsers.add_parser(
        "dev",
        allow_abbrev=False,
        help="run an application in one process, without Spark; reload it when it is saved",
        description=(
            "Run an application in one process, without Spark, and again whenever its files "
            "change. Breakpoints work; outputs are printed; state begins empty."
        ),
        epilog=EPILOG,
    )
    add_app(parser, _add_options)
    parser.set_defaults(handler=dev_command)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--once", action="store_true", help="end when files and generators end; do not reload"
    )


def dev_command(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C, or until the input ends with --once."""
    options, args = split_args(trailing_parser("dev", arguments.app, _add_options), arguments)
    sys.dont_write_bytecode = True  # two saves within a second would count as one
    watch = FileWatch(Path(options.app))
    try:
        try:
            application = load_application(options.app, args)
            watch.add_loaded()
            with DevRun(application) as run:
                run.serve(watch, options.once)
        except WallarooError as error:
            if options.once:
                raise
            _say(f"{error}{call_chain(error)}")
        if options.once:
            return 0
        _say("waiting for a change of the application's files (Ctrl-C ends)")
        while not watch.has_changed():
            watch.pause()
    except KeyboardInterrupt:
        return 0
    return _reload()


def _reload() -> NoReturn:
    _say("reloading")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class FileWatch:
    """A watch on the application's file and modules from its folder."""

    def __init__(self, app: Path) -> None:
        self._folder = app.resolve().parent
        self._seen = dict(_times([app.resolve()] if app.is_file() else []))
        self._selector = selectors.DefaultSelector()  # for sleeping only

    def add_loaded(self) -> None:
        """Watch all modules imported so far."""
        files = [getattr(module, "__file__", None) for module in sys.modules.values()]
        self._seen.update(
            _times(
                path
                for file in files
                if file and self._folder in (path := Path(file).resolve()).parents
            )
        )

    def has_changed(self) -> bool:
        """Return whether a file was saved since the watch on it began."""
        return dict(_times(self._seen)) != self._seen

    def pause(self) -> None:
        """Wait for one polling interval."""
        self._selector.select(POLL_S)


def _times(files: Any) -> Iterator[tuple[Path, int]]:
    for file in files:
        try:
            yield file, file.stat().st_mtime_ns
        except OSError:  # an editor is replacing it
            yield file, 0


class DevRun:
    """An application with its sources open, fed batch by batch."""

    def __init__(self, application: Application) -> None:
        self._running = LocalApplication(application, tasks=1)
        self._is_single = len(application.plan.sinks) == 1
        self._closing = ExitStack()
        self._selector = self._closing.enter_context(selectors.DefaultSelector())
        self._buffer = ReadBuffer()
        self._feeds: dict[str, Iterator[list[bytes]]] = {}  # payloads, or a Wire
        for source in application.plan.sources:
            self._open(source.config)

    def __enter__(self) -> DevRun:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    def serve(self, watch: FileWatch, is_once: bool) -> None:
        """Process input as it arrives, until a file changes or no more input can arrive."""
        while not watch.has_changed():
            has_more = self._feed()
            is_open = bool(self._selector.get_map())
            is_idle = not has_more and (self._feeds or is_open)
            for key, _ in self._selector.select(POLL_S if is_idle else 0):
                key.data()
            self._print(self._running.batch())
            if not self._feeds and (is_once or not is_open):
                return

    def _open(self, config: SourceConfig[Any]) -> None:
        if config.fed_by is FedBy.FEEDER:
            self._feeds[config.name] = _of_feed(config.open_feed(b""))
        elif config.carries_times or not config.has_plain_payloads:
            raise PeerError(
                f"source '{config.name}' ({config.label}): `wallaroo dev` reads TCP ports, files "
                "and generators only. Run the application with `wallaroo run`, or test it with "
                "wallaroo.testing.run_local on values of your own."
            )
        elif config.fed_by is FedBy.ITSELF:
            log = config.open_log(LogContext(Path()))
            self._closing.callback(log.close)
            self._feeds[config.name] = _of_log(log)
        elif config.listening is not None:
            self._listen(config, config.listening)

    def _listen(self, config: SourceConfig[Any], listening: Listening) -> None:
        try:
            server = socket.create_server((listening.host or "127.0.0.1", listening.port))
        except OSError as error:
            raise PeerError(
                f"source '{config.name}' cannot listen on {listening.host}:{listening.port}: "
                f"{os.strerror(error.errno or 0)}. Stop what listens there, "
                "or choose another port."
            ) from error
        self._closing.enter_context(server)
        accept = partial(self._accept, server, config)
        self._selector.register(server, selectors.EVENT_READ, accept)
        host, port = server.getsockname()[:2]
        _say(f"source '{config.name}' listens on {host}:{port}")

    def _feed(self) -> bool:
        """Read from feeds and logs; return whether there was anything."""
        has_more = False
        for name, feed in list(self._feeds.items()):
            more = next(feed, None)
            if more is None:
                del self._feeds[name]
            else:
                self._running.send(name, *more)
                has_more = has_more or bool(more)
        return has_more

    def _accept(self, server: socket.socket, config: SourceConfig[Any]) -> None:
        accepted, (host, port) = server.accept()
        self._closing.enter_context(accepted)
        connection = Connection(accepted, f"{host}:{port}", 0, config.wire_framing)
        receive = partial(self._receive, connection, config)
        self._selector.register(accepted, selectors.EVENT_READ, receive)

    def _receive(self, connection: Connection, config: SourceConfig[Any]) -> None:
        def store(frames: memoryview, _events: int) -> None:
            self._running.send(config.name, Wire(bytes(frames)))

        try:
            if connection.read(self._buffer, store):
                return
            connection.take_last(store)
        except FrameError as error:
            hint = text_hint(config.wire_framing, connection.unfinished_head)
            _say(f"source '{config.name}' closed a connection: {error}{hint}")
        except OSError as error:
            _say(f"source '{config.name}' lost {connection.peer}: {error.strerror}")
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _print(self, outputs: dict[str, list[bytes]]) -> None:
        for sink, some in outputs.items():
            for output in some:
                text = output.decode(errors="backslashreplace").rstrip("\n")
                print(text if self._is_single else f"[{sink}] {text}", flush=True)


def _of_feed(feed: Feed) -> Iterator[list[bytes]]:
    """Yield a feed's events, run by run."""
    while run := feed.next_run():
        yield [Wire(run.frames)] if run.events else []


def _of_log(log: SourceLog) -> Iterator[list[bytes]]:
    """Yield a log's events from beginning to end, an empty list while more may arrive."""
    position = log.beginning()
    while True:
        while log.backlog(position):
            end = log.advance(position, EVENTS_MAX)
            for part in chain.from_iterable(log.split(position, end, 1)):
                for records in log.read(part):
                    yield [Wire(records.frames)] if records.frames else records.payloads
            log.committed(end, None)
            position = end
        if log.head().is_ended:  # raises any error that follows the last event
            return
        yield []


def _say(text: str) -> None:
    print(f"wallaroo: {text}", file=sys.stderr, flush=True)
