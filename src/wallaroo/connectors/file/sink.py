"""FileSinkConfig and its writer: exactly once for readers that follow the rule.

The rule for readers:

* A *directory* (the path has no suffix) holds one file per batch with output,
  ``part-<batch>-<writer>-<commit>``.  It appears whole, by rename, and never changes.  Read
  ``part-*`` in order of name and nothing else: no batch is ever partial or repeated.
* A *single file* (the path has a suffix, ``out.txt``) grows by one batch at a time.
  ``out.txt.committed`` states how long its committed part is (``length``, bytes).  A reader that
  must be exact reads up to there; bytes after it may be truncated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.staging import StagedWriter
from wallaroo.steps.kinds import Encoder
from wallaroo.user_code.references import load

Wrap = Callable[[Sequence[bytes]], Sequence[bytes]]


def _lines(outputs: Sequence[bytes]) -> Sequence[bytes]:
    return [output + b"\n" for output in outputs]


def _frames(outputs: Sequence[bytes]) -> Sequence[bytes]:
    return [len(output).to_bytes(4, "big") + output for output in outputs]


WRAPS: dict[str, Wrap] = {"raw": lambda outputs: outputs, "lines": _lines, "frames": _frames}


class FormWriter(StagedWriter):
    """A writer that stages outputs in the file's form."""

    def __init__(self, context: WriteContext, form: str):
        super().__init__(context)
        self._wrap = WRAPS[form]

    def write(self, outputs: Sequence[bytes]) -> None:
        super().write(self._wrap(outputs))


FORMS = ("raw", "lines", "frames")


@dataclass(frozen=True, slots=True)
class FileSinkConfig(SinkConfig):
    """A sink that writes outputs to files, exactly once.

    ``path`` with a suffix (``out.txt``) is one growing file; without, a directory with one file per
    batch.  The head of this module and docs/connectors/file.md have the rule for reading either
    exactly. ``form`` is ``raw`` (outputs one after the other), ``lines`` (a newline after each) or
    ``frames`` (their length before each, 4 bytes, big endian).  The path is the driver's.  A path
    that holds anything but this checkpoint's output of this sink is refused; with
    ``overwrite=True`` a checkpoint that has committed nothing yet removes the existing files.
    """

    kind: ClassVar[str] = "file"
    target_form: ClassVar[str] = "{0.path}"
    opener: ClassVar[str] = "wallaroo.connectors.file.single_file:open_committer"
    shown_options: ClassVar[str] = "{0.target!r}"
    can_roll_back: ClassVar[bool] = True
    has_staged_tokens: ClassVar[bool] = True
    path: str | Path
    encoder: Encoder[Any] | None = None
    form: str = "raw"
    overwrite: bool = False
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise self._wrong(
                f"form={self.form!r} is unknown.", f"Choose one of {', '.join(map(repr, FORMS))}."
            )

    @property
    def written_form(self) -> str:
        return "outputs as they are" if self.form == "raw" else self.form

    def writer(self, context: WriteContext) -> SinkWriter:
        return FormWriter(context, self.form)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        open_committer: Callable[..., SinkCommitter] = load(self.opener)
        return open_committer(self, sink, staging, is_durable)
