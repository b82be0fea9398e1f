"""What a row of the table of mistakes is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MARK = "# here"  # ends the line that a message has to name

# Around most mistakes: lines of a file, through the steps of ``{steps}``, to a file.
FRAME = """\
import wallaroo
{body}
def application_setup(args):
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt"))
    return wallaroo.build_application("App", lines{steps}.to_sink(wallaroo.FileSinkConfig("out")))
"""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake: what is in the application's file, the command, and what it has to answer.

    ``says`` are parts of the message; ``APP`` in them is the application's path, and ``HERE`` the
    path and the number of the marked line.
    """

    number: str  # of the newcomer's list; letters where it names several at once
    what: str
    app: str
    says: tuple[str, ...]
    code: int = 2
    file: str = ""  # the application's; one for each row, as a module is imported once
    options: tuple[str, ...] = ()  # of ``wallaroo run``, before the application
    arguments: tuple[str, ...] = ()  # after it
    lines: str = "a\n"  # of in.txt
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # beside it

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.file or f"mistake_{self.number}.py"

    def wanted(self, app: Path) -> list[str]:
        """What the answer must have in it, for an application at this path."""
        marked = [
            number for number, line in enumerate(self.app.splitlines(), 1) if line.endswith(MARK)
        ]
        here = f"{app}:{marked[0]}" if marked else ""
        return [part.replace("HERE", here).replace("APP", str(app)) for part in self.says]


def framed(steps: str, body: str = "") -> str:
    """The text of an application with these steps."""
    return FRAME.format(steps=steps, body=body)
