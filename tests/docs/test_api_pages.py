"""The API pages describe every parameter of their functions and classes, with its default."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

API = Path(__file__).parents[2] / "docs" / "api"
MODULES = {
    "serdes": "wallaroo.serdes",
    "sketches": "wallaroo.sketches",
    "aggregations": "wallaroo.aggregations",
    "vectorized": "wallaroo.vectorized.grouping",
}
# made by the package for users' functions, never by users
NOT_CONSTRUCTED = {"Serde", "ShapeError", "CsvLine"}


def parameters(module: str) -> Iterator[tuple[str, inspect.Parameter]]:
    public = importlib.import_module(module)
    names = getattr(public, "__all__", ["running_sum", "running_count", "last_rows"])
    for name in names:
        if name not in NOT_CONSTRUCTED:
            for parameter in inspect.signature(getattr(public, name)).parameters.values():
                yield name, parameter


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
