"""The writer of a file sink: outputs in the file's form, staged.

Where it runs: worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.staging import StagedWriter

Wrap = Callable[[Sequence[bytes]], Sequence[bytes]]


def _raw(outputs: Sequence[bytes]) -> Sequence[bytes]:
    return outputs


def _lines(outputs: Sequence[bytes]) -> Sequence[bytes]:
    return [output + b"\n" for output in outputs]


def _frames(outputs: Sequence[bytes]) -> Sequence[bytes]:
    return [len(output).to_bytes(4, "big") + output for output in outputs]


WRAPS: dict[str, Wrap] = {"raw": _raw, "lines": _lines, "frames": _frames}


class FormWriter(StagedWriter):
    """A writer that stages outputs in the file's form."""

    def __init__(self, context: WriteContext, form: str):
        super().__init__(context)
        self._wrap = WRAPS[form]

    def write(self, outputs: Sequence[bytes]) -> None:
        super().write(self._wrap(outputs))
