"""The documentation's code runs, its commands parse, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from wallaroo.cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
RUN = [
    ROOT / "README.md",
    ROOT / "docs" / "quickstart.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "cli.md",
    ROOT / "docs" / "errors.md",
    ROOT / "docs" / "state.md",
    ROOT / "docs" / "sources.md",
    ROOT / "docs" / "sinks.md",
    ROOT / "docs" / "time.md",
    ROOT / "docs" / "windows.md",
    ROOT / "docs" / "connectors.md",
    ROOT / "docs" / "kafka.md",
    ROOT / "docs" / "serdes.md",
]
BUILT = {"api/index.html"}  # made by `make docs`


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in RUN if blocks(page, "python")], ids=lambda page: page.name
)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A block that begins with a file's name (``# word_count.py``) is that file for the next ones;
    tests in a block run.
    """
    module = ModuleType(f"page_{page.stem.lower()}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in blocks(page, "python"):
        if named := re.match(r"# (\w+)\.py\n", block):
            (tmp_path / f"{named[1]}.py").write_text(block)
            monkeypatch.delitem(sys.modules, named[1], raising=False)
    exec(compile("\n".join(blocks(page, "python")), str(page), "exec"), module.__dict__)
    for name, test in list(vars(module).items()):
        if name.startswith("test_"):
            test()


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_commands_of_a_page_parse(page: Path) -> None:
    for block in blocks(page, "console"):
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["wallaroo"] and words[-1] != "--help":
                assert build_parser().parse_args(words[1:]).handler


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert [link for link in links if link not in BUILT and not (page.parent / link).exists()] == []
