"""See that no file names a directory of one particular machine, such as a user's home, and that
words which are not the field's do not come back.

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
# Each has a better one: committed, reported, after, again, fix, misplaced, invariant, rebuilt, ...
# As words of texts and as parts of identifiers.
NOT_OURS = (
    "told tells telling somebody nobody whoever anew cure cures cured stands stray strays "
    "straying law laws mend mends mended mending culprit culprits heed heeds kin obey obeys "
    "homeless hear hears heard surroundings greet greets greeted midst joiner joiners"
)
WORD = re.compile(
    rf"(?<![A-Za-z])({'|'.join(NOT_OURS.split())})(?![a-z])|"
    rf"({'|'.join(word.title() for word in NOT_OURS.split())})(?![a-z])"
)
# Phrases that English has otherwise: leave out, belong in, unavailable, retried, happens to, ...
PHRASES = re.compile(
    r"\bleaves? (?:-*\w+ )?away\b|\bbelongs? into\b|\bthe whole of it\b|\bbecomes? of\b|"
    r"\b(?:is|are|was|were) away\b|\btried again\b|\bend(?:s|ed)? by itself\b|"
    r"(?<!there )(?<!There )\b(?:is|are) no (?!longer\b|more\b|other\b|such\b|\d)[a-z]"
)
# A clause as subject ("What rows lack is ..."): name the subject.  Questions and titles may be so.
CLAUSE = re.compile(r"(?:^|[.;|] )\**What (?!to\b|next\b)[a-z]+ [a-z]+(?![^.|]*\?)")
PAGES = re.compile(r"README\.md$|docs/(?!decisions/)")
WRITTEN = ("src/", "docs/", "scripts/", "benchmarks/", "examples/", "README", "CHANGELOG")
# Where they may be: texts of others, and this list.
QUOTED = ("LICENSE", "examples/word_count/", "scripts/check_text.py", "tests/unit/scripts/")
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


# The package is in no registry: a hint names a library, or a clone of the repository.
UNPUBLISHED = re.compile(r"pip install[^\n`]*wallaroo-spark")


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
    """A line for each machine path in a text, and for each word that is not ours."""
    is_quoted = name.startswith(QUOTED)
    for number, line in enumerate(text.splitlines(), 1):
        if not is_quoted and (word := WORD.search(line)):
            yield f"{name}:{number}: not a word of this project: {word.group()}"
        if not is_quoted and name.startswith(WRITTEN) and (phrase := PHRASES.search(line)):
            yield f"{name}:{number}: not how an engineer says it: {phrase.group()}"
        if PAGES.match(name) and (clause := CLAUSE.search(line)):
            yield f"{name}:{number}: a clause as subject: {clause.group()}"
        if not is_quoted and UNPUBLISHED.search(line):
            yield f"{name}:{number}: wallaroo-spark is in no registry that pip installs from"
        found = MACHINE_PATH.search(line)
        if found:
            yield f"{name}:{number}: names a path of one machine: {found.group()}"


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    wrong: list[str] = []
    for path in files(ROOT):
        try:
            wrong += complaints(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue  # not a text
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
