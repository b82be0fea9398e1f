"""What the site adds to the pages of docs/: the list of decisions, text in the place of links that
leave the site, and a local copy of the one script that the theme would fetch.

Where it runs: `mkdocs build`, as a hook; `Doctests` as an extension of griffe.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

from griffe import Docstring, Extension, Module, Object

DECISIONS = Path(__file__).resolve().parent.parent / "docs" / "decisions"
LIST = "<!-- the list is made when the site is built -->"
FETCHED, OURS = "https://unpkg.com/iframe-worker/shim", Path("assets", "iframe-worker.js")
# examples and benchmarks are beside docs/, and not part of the site
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?:examples|benchmarks|src|tests|deploy)[^)]*)\)")
_DOCTEST = re.compile(r"^>>> .*\n(?:.+\n?)*", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with each page's text."""
    if page.file.src_uri == "decisions/index.md":
        markdown = markdown.replace(LIST, decisions(DECISIONS))
    return _OUTSIDE.sub(r"\1", markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Called by mkdocs when all pages are written."""
    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        ours = os.path.relpath(site / OURS, page.parent)
        page.write_text(text.replace(FETCHED, ours), encoding="utf-8")


def decisions(folder: Path) -> str:
    """The decisions of a folder as a list of links, in order of their numbers."""
    lines = []
    for path in sorted(folder.glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"* [{title}]({path.name})")
    return "\n".join(lines)


class Doctests(Extension):
    """Shows the doctests of docstrings as code, and the names that packages load at first use."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Called for the whole package: name exports that are not written out in the source."""
        for module in (pkg, *pkg.modules.values()):
            if not all(isinstance(name, str) for name in module.exports or ()):
                module.exports = list(importlib.import_module(module.path).__all__)

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Called for each module, class and function."""
        if isinstance(obj.docstring, Docstring):
            text = obj.docstring.value
            obj.docstring.value = _DOCTEST.sub(_as_block, text)


def _as_block(doctest: re.Match[str]) -> str:
    return f"```pycon\n{doctest[0].rstrip()}\n```\n"
