"""Write the stubs of the packages that load their names lazily, for type checkers and editors.

    write_stubs.py            print which stub is not current; return 1 if any is
    write_stubs.py --write    write them

Where it runs: a check.  Imports the packages without their modules.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src"
FACES = ("wallaroo", "wallaroo.sources", "wallaroo.sinks")


def stub(face: str) -> str:
    """Return the text of a package's stub: an ordinary import of each exported name."""
    homes: dict[str, str] = importlib.import_module(face).HOMES
    lines = sorted(
        f"from {face if module == f'{face}.{name}' else module} import {name} as {name}"
        for name, module in homes.items()
    )
    return "\n".join([f"# Written by scripts/{Path(__file__).name}.", *lines, ""])


def main() -> int:
    """Compare the stubs with the packages, or write them."""
    sys.path.insert(0, str(ROOT))
    stale = 0
    for face in FACES:
        path = ROOT / face.replace(".", "/") / "__init__.pyi"
        text = stub(face)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--write" in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        else:
            print(
                f"{path.relative_to(ROOT.parent)} is not current; run {Path(__file__).name} --write"
            )
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
