"""Build the documentation into site/: the pages of docs/ and the API reference, generated from
docstrings by pdoc.

Where it runs: `make docs`.  Nothing of site/ is kept under version control.
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from pathlib import Path

import markdown2
import pdoc
import pdoc.render

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
# What users call; the rest of the package is its own business.
MODULES = (
    "wallaroo",
    "wallaroo.testing",
    "wallaroo.errors",
    "wallaroo.sources.interface",
    "wallaroo.sinks.interface",
)
EXTRAS = ["fenced-code-blocks", "tables", "header-ids"]
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body{{max-width:48rem;margin:2rem auto;padding:0 1rem;
font:1rem/1.55 system-ui,sans-serif}}
pre,code{{background:#f4f4f4}}pre{{padding:.8rem;overflow:auto}}
td,th{{padding:.2rem .8rem;text-align:left}}</style>
<body>{body}</body></html>
"""


def render_page(text: str) -> str:
    """One Markdown page as HTML; links between pages keep working."""
    title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), "wallaroo")
    body = re.sub(
        r'href="(?!https?:)([^"#]+)\.md',
        r'href="\1.html',
        str(markdown2.markdown(text, extras=EXTRAS)),
    )
    return PAGE.format(title=html.escape(title), body=body)


def main() -> int:
    """Build everything; return 0."""
    shutil.rmtree(SITE, ignore_errors=True)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        target = SITE / page.relative_to(ROOT / "docs").with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(render_page(page.read_text(encoding="utf-8")), encoding="utf-8")
    pdoc.render.configure(docformat="markdown", show_source=False)
    pdoc.pdoc(*MODULES, output_directory=SITE / "api")
    print(f"Documentation is in {SITE.relative_to(ROOT)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
