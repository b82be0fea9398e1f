"""The documentation's code runs, its commands parse, its links lead somewhere."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

import wallaroo
from wallaroo.cli.main import build_parser

ROOT = Path(__file__).parents[2]
RUN = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PAGES = [*RUN, ROOT / "CONTRIBUTING.md", *(ROOT / "benchmarks").glob("*.md")]


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
            # away now, and away again at the end if a later block imports it
            monkeypatch.setitem(sys.modules, named[1], ModuleType(named[1]))
            del sys.modules[named[1]]
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
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """Decisions are on a page of their own, which lists them when the site is built."""
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)
    linked = set(pages_of(site["nav"]))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    numbered = {page for page in pages if re.match(r"decisions/\d", page)}
    assert pages - numbered == linked


def pages_of(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from pages_of(below)
    elif isinstance(nav, list):
        for below in nav:
            yield from pages_of(below)


def test_the_api_pages_have_every_name_that_a_public_module_exports(tmp_path: Path) -> None:
    """They are built as `make docs` builds them; modules are named in the page's text."""
    folder = ROOT / "docs" / "api"
    file = str(ROOT / "mkdocs.yml")
    build(load_config(file, docs_dir=str(folder), site_dir=str(tmp_path), nav=None, strict=False))
    modules = {}
    for page in folder.glob("*.md"):
        (name,) = re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
        modules[name] = importlib.import_module(name)
        site = (tmp_path / f"{page.stem}.html").read_text()
        shown = set(re.findall(r'id="[\w.]+\.(\w+)"', site))
        shown |= set(re.findall(r"`(\w+)`", page.read_text()))
        assert set(public_names(modules[name])) - shown == set(), name
    exporting = {
        f"wallaroo.{each.name}"
        for each in pkgutil.iter_modules(wallaroo.__path__)
        if hasattr(importlib.import_module(f"wallaroo.{each.name}"), "__all__")
    }
    assert exporting - {"wallaroo.spool"} - set(modules) == set(), "public modules without a page"


def public_names(module: ModuleType) -> list[str]:
    """Return what a module exports; if it has no list of that, the functions that it defines."""
    functions = inspect.getmembers(module, inspect.isfunction)
    defined = [
        name for name, each in functions if each.__module__ == module.__name__ and name[0] != "_"
    ]
    return list(getattr(module, "__all__", defined))


@pytest.mark.parametrize("name", ["serdes", "sketches"])
def test_the_api_page_documents_every_parameter(name: str) -> None:
    page = (ROOT / "docs" / "api" / f"{name}.md").read_text()
    module = importlib.import_module(f"wallaroo.{name}")
    documented = set(re.findall(r"`(\w+)(?:\(\w*\))?`", page))
    for public in module.__all__:
        thing = getattr(module, public)
        if isinstance(thing, type) and issubclass(thing, Exception | tuple):
            continue
        if public != "Serde":
            assert set(inspect.signature(thing).parameters) - {"self"} - documented == set(), public
