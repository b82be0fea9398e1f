"""A trial version of an application, isolated from the deployed one.

It prints its outputs and uses its own names elsewhere.

Where it runs: driver, in ``wallaroo dev``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from wallaroo.api.application import Application
from wallaroo.connectors.stdout.sink import StdoutSinkConfig
from wallaroo.dataflow.plan.model import Plan, SinkPlan
from wallaroo.errors import WallarooError
from wallaroo.sinks.interface import SinkWriter, WriteContext
from wallaroo.sinks.wrapped_encoder import Pack, WrappedEncoder


@dataclass(frozen=True, slots=True)
class PrintedSinkConfig(StdoutSinkConfig):
    """A sink that prints the outputs of another one, each after ``prefix``."""

    prefix: str = ""

    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer that stages one task's lines of one batch."""
        return _PrefixWriter(StdoutSinkConfig.writer(self, context), self.prefix.encode())


class _PrefixWriter(SinkWriter):
    def __init__(self, lines: SinkWriter, prefix: bytes):
        self._lines = lines
        self._prefix = prefix

    def write(self, outputs: Any) -> None:
        self._lines.write([self._prefix + output for output in outputs])

    def prepare(self) -> Any:
        return self._lines.prepare()

    def abort(self) -> None:
        self._lines.abort()


@dataclass(frozen=True, slots=True)
class Printed:
    """The readable form of a packed output; ``pack`` only checks it."""

    pack: Pack

    def __call__(self, output: Any) -> bytes:
        self.pack(output)
        return readable(output).encode(errors="backslashreplace")


def readable(output: Any) -> str:
    """Return an output of a sink's encoder as a line of text.

    >>> readable(b"v"), readable(("v", "k"))
    ('v', "v  key='k'")
    >>> readable({"word": "a", "total": 2})
    '{"word": "a", "total": 2}'
    """
    if isinstance(output, bytes | bytearray | memoryview):
        return bytes(output).decode(errors="backslashreplace")
    if isinstance(output, dict):
        return json.dumps(output, default=str, ensure_ascii=False)
    if isinstance(output, tuple) and output:
        names = getattr(output, "_fields", ("value", "key", "partition", "headers"))
        rest = zip(names[1:], output[1:], strict=False)
        said = [f"{name}={value!r}" for name, value in rest if value not in (None, ())]
        return "  ".join([readable(output[0]), *said])
    return str(output)


def trial(application: Application) -> Application:
    """Return an application that prints its outputs, and is not mistaken for the original."""
    try:
        application.check_dead_letters()
    except WallarooError:  # there is no sink for them: they are printed, too
        application = application.with_dead_letters(StdoutSinkConfig())
    plan: Plan = application.plan
    is_single = len(plan.sinks) == 1
    sinks = tuple(_printed(sink, "" if is_single else f"[{sink.name}] ") for sink in plan.sinks)
    sources = tuple(replace(source, config=source.config.for_trial()) for source in plan.sources)
    return replace(application, plan=replace(plan, sinks=sinks, sources=sources))


def _printed(sink: SinkPlan, prefix: str) -> SinkPlan:
    encoder = sink.encoder
    if isinstance(encoder, WrappedEncoder):
        encoder = WrappedEncoder(encoder.inner, Printed(encoder.pack))
    return replace(sink, config=PrintedSinkConfig(prefix=prefix), encoder=encoder)
