"""The API pages describe every parameter of their functions and classes, with its default."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo.api.joins import NOT_GIVEN
from wallaroo.api.pipeline import MAX_AHEAD

API = Path(__file__).parents[2] / "docs" / "api"
MODULES = {
    "serdes": "wallaroo.serdes",
    "sketches": "wallaroo.sketches",
    "aggregations": "wallaroo.aggregations",
    "vectorized": "wallaroo.vectorized.grouping",
}
RETURNED = (
    wallaroo.Pipeline,
    wallaroo.KeyedPipeline,
    wallaroo.RangeWindows,
    wallaroo.CountWindows,
    wallaroo.SessionWindows,
)
COLUMNS = 4  # of a table of parameters: function, parameter, type and default, meaning
# made by the package for users' functions, never by users
NOT_CONSTRUCTED = {"Serde", "ShapeError", "CsvLine"}


def parameters(module: str) -> Iterator[tuple[str, inspect.Parameter]]:
    public = importlib.import_module(module)
    names = getattr(public, "__all__", ["running_sum", "running_count", "last_rows"])
    for name in names:
        if name not in NOT_CONSTRUCTED:
            for parameter in inspect.signature(getattr(public, name)).parameters.values():
                yield name, parameter


def functions() -> Iterator[tuple[str, Any]]:
    """The functions of ``wallaroo``, and the methods of what they return, by name."""
    for name in wallaroo.__all__:
        own = getattr(wallaroo, name)
        if inspect.isfunction(own) and "_parse_" not in name and "CLIParser" not in name:
            yield name, own
    for kind in RETURNED:
        for name, own in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                yield name, own


def described(page: str) -> dict[tuple[str, str], str]:
    """The type and default of each function's parameters; an empty cell repeats the one above."""
    found: dict[tuple[str, str], str] = {}
    names: list[str] = []
    for line in (API / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != COLUMNS:
            continue
        names = re.findall(r"`(\w+)`", cells[0]) or names
        for own in names:
            for parameter in re.findall(r"`(\w+)`", cells[1]):
                found[own, parameter] = cells[2]
    return found


def default_of(parameter: inspect.Parameter) -> str:
    """What a cell says of the default."""
    default = parameter.default
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return ""
    if default in (inspect.Parameter.empty, NOT_GIVEN):
        return "required"
    if default == MAX_AHEAD:
        return "`hours(24)`"
    return "`" + repr(default).replace("'", '"') + "`"


def test_the_first_page_has_every_parameter_of_functions_and_methods_with_its_default() -> None:
    page = described("index.md")
    expected = {
        (name, parameter.name): default_of(parameter)
        for name, own in functions()
        for parameter in inspect.signature(own).parameters.values()
        if parameter.name != "self"
    }
    assert [own for own in expected if own not in page] == []
    assert {own: page[own] for own, default in expected.items() if default not in page[own]} == {}
    assert [own for own in page if own not in expected] == []


def test_the_first_page_has_every_method_of_a_context_with_its_parameters() -> None:
    page = (API / "index.md").read_text()
    for name, own in inspect.getmembers(wallaroo.Context, inspect.isfunction):
        if not name.startswith("_") and name != "cancel_timer":  # one name is one timer now
            parameters_of = list(inspect.signature(own).parameters.values())[1:]
            texts = [str(each.replace(annotation=each.empty)) for each in parameters_of]
            assert f"| `{name}({', '.join(texts)})` |" in page


@pytest.mark.parametrize("page", MODULES)
def test_a_page_has_every_parameter_with_its_default(page: str) -> None:
    rows = [row for row in (API / f"{page}.md").read_text().splitlines() if row.startswith("|")]
    for name, parameter in parameters(MODULES[page]):
        named = [row for row in rows if re.search(rf"`\*?\*?{parameter.name}`", row)]
        assert named, f"{page}.md: {name}({parameter.name})"
        default = parameter.default
        if default is inspect.Parameter.empty or "factory" in repr(default):
            continue
        texts = {repr(default), repr(default).replace("'", '"')}
        if isinstance(default, float):
            texts.add(f"{default:g}")
        assert any(f"`{text}`" in row for row in named for text in texts), (
            f"{page}.md: {name}({parameter.name}={default!r})"
        )
