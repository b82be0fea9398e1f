"""The file source: the lines or frames of whole files.

Where it runs: the configuration is pickled; workers read the files, the driver only finds the
places at which events begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wallaroo.connectors.file.cutting import PAYLOAD_BYTES_MAX
from wallaroo.protocols.framing import Framing
from wallaroo.sources.interface import FedBy, Line, SourceConfig
from wallaroo.steps.kinds import Decoder
from wallaroo.steps.option_values import check_choice

FORMS = ("lines", "frames")


def _text(payload: bytes) -> str:
    return payload.decode()


text: Decoder[str] = Decoder(_text, "utf-8 text", is_pure=True)
text.__qualname__ = "text"  # pickled by reference, under the name it has here


@dataclass(frozen=True, slots=True)
class FileSourceConfig(SourceConfig[Line]):
    r"""A source that reads one or several files in turn, then ends.

    ``path`` is a file, a folder (its files, without hidden ones and subfolders) or a pattern such
    as ``logs/*.jsonl.gz`` (``**`` for subfolders, but not linked ones).  Several files are read in
    the order of their paths; a last line without a newline ends with its file.  Names that end with
    ``.gz`` are decompressed.  Workers read the files in place: on a cluster, the path has to be
    valid on every host.

    The files and their lengths are looked up when the run starts: the next start reads the bytes
    appended to the last file, and new files whose paths follow it.

    ``form="lines"``: every line, without its ``\n`` or ``\r\n``, is a payload, empty ones too
    unless ``skip_empty``.  The decoder's header does not matter then, and the default decoder
    returns a ``str`` of UTF-8.  ``form="frames"``: the file holds frames as the decoder reads them.
    """

    kind: ClassVar[str] = "file"
    may_end: ClassVar[bool] = True
    label_form: ClassVar[str] = "file {0.path}"
    opener: ClassVar[str] = "wallaroo.connectors.file.log:open_log"
    fed_by: ClassVar[FedBy] = FedBy.ITSELF

    name: str
    path: str
    decoder: Decoder[Line] = text  # type: ignore[assignment]  # and Line is str then
    form: str = "lines"
    skip_empty: bool = False

    def __post_init__(self) -> None:
        check_choice(self, "form", FORMS)

    @property
    def wire_framing(self) -> Framing:
        if self.form == "frames":
            return Framing(self.decoder.header_length(), self.decoder.length_fmt, PAYLOAD_BYTES_MAX)
        return Framing(max_size=PAYLOAD_BYTES_MAX)
