"""See that no file names a directory of one particular machine, such as somebody's home.

Where it runs: a check.  Reads every text file that is, or would be, under version control.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINE_PATH = re.compile(r"(?<![\w.~})/-])/(?:work|root|home/\w+|Users/\w+)(?![\w-])")
SKIPPED = frozenset(
    {
        ".git",
        ".venv",
        "site",
        "build",
        "dist",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        "__pycache__",
    }
)


def files(root: Path) -> Iterator[Path]:
    """Files under version control or not ignored by it; without git, all but what tools make."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        yield from (
            root / name for name in listing.stdout.split("\0") if name and (root / name).is_file()
        )
        return
    yield from (
        path
        for path in root.rglob("*")
        if path.is_file() and not SKIPPED & set(path.relative_to(root).parts)
    )


def complaints(name: str, text: str) -> Iterator[str]:
    """A line for each machine path in a text."""
    for number, line in enumerate(text.splitlines(), 1):
        found = MACHINE_PATH.search(line)
        if found:
            yield f"{name}:{number}: names a path of one machine: {found.group()}"


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    wrong = []
    for path in files(ROOT):
        try:
            wrong += complaints(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue  # not a text
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
