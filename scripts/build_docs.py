"""Build the documentation site into site/: the pages of docs/, the API reference from docstrings.

Where it runs: `make docs`.  Nothing of site/ is kept under version control.  Fails where a page is
missing from the navigation, a link leads nowhere, or a page would fetch something from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
# what a browser loads by itself
_LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//|<link[^>]*rel="stylesheet"[^>]*//'
)


def fetched(site: Path) -> Iterator[str]:
    """Pages that would load something from another server."""
    for page in sorted(site.rglob("*.html")):
        if _LOADED.search(page.read_text(encoding="utf-8")):
            yield str(page.relative_to(site))


def main() -> int:
    """Build everything; return 0, or 1 with what is wrong."""
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--clean"]
    # the theme announces its successor at every build
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        return 1
    if wrong := list(fetched(SITE)):
        print(f"these pages do not work offline: {', '.join(wrong)}", file=sys.stderr)
        return 1
    print(f"Documentation is in {SITE.relative_to(ROOT)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
