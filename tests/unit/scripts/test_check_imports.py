"""The check of import directions finds what it is there for."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check_imports, check_text = load("check_imports"), load("check_text")


def wrong(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in {"wallaroo/__init__.py": "", **files}.items():
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(check_imports.check(root / "src"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"wallaroo/engine/a.py": "import socket\n"},
            "src/wallaroo/engine/a.py:1: engine is pure: no socket",
        ),
        (
            {"wallaroo/dataflow/graph/a.py": "from os import path\n"},
            "src/wallaroo/dataflow/graph/a.py:1: dataflow.graph is pure: no os",
        ),
        (
            {
                "wallaroo/dataflow/graph/a.py": "from wallaroo.dataflow.plan import b\n",
                "wallaroo/dataflow/plan/b.py": "",
            },
            "graph must not know wallaroo.dataflow.plan.b",
        ),
        ({"wallaroo/state/a.py": "import pyspark.sql\n"}, "pyspark belongs in wallaroo.spark"),
        (
            {"wallaroo/spark/a.py": "import py4j\nfrom wallaroo.cli import main\n"},
            "the command line is imported by no module",
        ),
        (
            {
                "wallaroo/spark/a.py": "import pyspark\n",
                "wallaroo/spark/b.py": "from wallaroo.spark import a\n",
                "wallaroo/spark/c.py": "import json\n",
            },
            "wallaroo.spark.c needs nothing that wallaroo.spark is the home of; move it",
        ),
        (
            {"wallaroo/state/a.py": "def f():\n    import json\n"},
            "src/wallaroo/state/a.py:2: import of json inside a function",
        ),
        (
            {
                "wallaroo/a.py": "from wallaroo import b\n",
                "wallaroo/b.py": "from . import c\n",
                "wallaroo/c.py": "import wallaroo.a\n",
            },
            "modules import each other: wallaroo.a, wallaroo.b, wallaroo.c",
        ),
        (
            {
                "wallaroo/a.py": "from wallaroo import b\n",
                "wallaroo/b.py": (
                    "import importlib\ndef f():\n    importlib.import_module('wallaroo.a')\n"
                ),
            },
            "src/wallaroo/b.py:3: import of wallaroo.a inside a function",
        ),
        (
            {
                "wallaroo/one/__init__.py": "",
                "wallaroo/one/a.py": "from wallaroo.two import b\n",
                "wallaroo/one/c.py": "",
                "wallaroo/two/__init__.py": "",
                "wallaroo/two/b.py": "",
                "wallaroo/two/d.py": "from wallaroo.one import c\n",
            },
            "packages import each other: wallaroo.one, wallaroo.two",
        ),
        (
            {
                "wallaroo/one/__init__.py": "",
                **{f"wallaroo/one/m{number}.py": "" for number in range(15)},
            },
            "one: 15 modules; at most 14",
        ),
        (
            {
                "wallaroo/one/__init__.py": "",
                "wallaroo/one/a.py": "from wallaroo.one.two import b\n",
                "wallaroo/one/c.py": "",
                "wallaroo/one/two/__init__.py": "",
                "wallaroo/one/two/b.py": "",
                "wallaroo/one/two/d.py": "from wallaroo.one import c\n",
            },
            "packages import each other: wallaroo.one, wallaroo.one.two",
        ),
        (
            {
                "wallaroo/sources/__init__.py": "",
                "wallaroo/a.py": "from wallaroo.sources import SourceConfig\n",
            },
            "wallaroo.sources is a face: import from the module that has the name",
        ),
        (
            {f"wallaroo/m{number}.py": "" for number in range(8)},
            "9 modules at the top; at most 8",
        ),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    found = wrong(tmp_path, files)
    assert any(expected in line for line in found)
    assert len(found) == 1 or "import_module" in str(files)  # that makes a cycle, too


def test_right_imports_pass(tmp_path: Path) -> None:
    files = {
        "wallaroo/errors.py": "import json\n",
        "wallaroo/engine/a.py": "from wallaroo.errors import X\nimport gc\n",
        "wallaroo/spark/b.py": "import pyspark\nfrom wallaroo.engine import a\n",
        "wallaroo/cli/main.py": "from wallaroo.spark.b import run\n",
    }
    assert wrong(tmp_path, files) == []


@pytest.mark.parametrize(
    "path",
    [
        "/".join(["", "root", "x"]),
        "/".join(["", "home", "ann", "x"]),
        "'" + "/".join(["", "work"]) + "'",
    ],
)
def test_a_machines_path_is_found(path: str) -> None:
    assert list(check_text.complaints("f", f"see {path} there"))


@pytest.mark.parametrize(
    "path", ["/tmp/x", "a/work/b", "/workers", "/rootless", "https://example.org/work"]
)
def test_other_paths_are_left_alone(path: str) -> None:
    assert not list(check_text.complaints("f", f"see {path} there"))


def test_a_page_with_another_graph_than_the_codes_is_found(tmp_path: Path) -> None:
    files = {
        "wallaroo/low/__init__.py": "",
        "wallaroo/high/__init__.py": "import wallaroo.low\n",
    }
    page = tmp_path / "ARCHITECTURE.md"
    page.write_text("before\n<!-- package graph -->\n<!-- end of package graph -->\nafter\n")
    assert "package graph is not the code's" in wrong(tmp_path, files)[0]

    lines = check_imports.graph_lines({"wallaroo.low": set(), "wallaroo.high": {"wallaroo.low"}})
    page.write_text(check_imports._with_graph(page, lines))

    assert lines == ["low", "high              low"]
    assert wrong(tmp_path, files) == []
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")
