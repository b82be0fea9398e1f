"""The check of structure: what it refuses, and that it is content with the package."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts import check_structure

ELEVEN = ", ".join(f"a{number}" for number in range(11))
MANY = "".join(f"        self.a{number} = 0\n" for number in range(13))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (f"class A:\n    def __init__(self):\n{MANY}", "A has 13 attributes"),
        ("class A:\n    def start(self):\n        self.x = 1\n", "A.x is created outside"),
        (
            f"class A:\n    def __init__(self, {ELEVEN}):\n        0",
            "A() takes 11 arguments",
        ),
        ("f(1, 2, 3, 4, 5, 6, 7, 8, 9)", "9 positional arguments for f"),
        ("def f():\n" + "    g()\n" * 60, "f has 61 lines"),
        ("a, b = 1, 2", "several assignments"),
        ("a = b = 0", "several assignments"),
        ('SIZE = struct.Struct("<I")', "little endian"),
        ('n.to_bytes(4, "little")', "little endian"),
    ],
)
def test_what_grew_too_large_is_refused(source: str, words: str) -> None:
    (complaint,) = check_structure.complaints("m", ast.parse(source))
    assert words in complaint


@pytest.mark.parametrize(
    "source",
    ["a, b = b, a", "a, b = f()", "f(1, 2, 3, 4, *rest, x=1)", "class A:\n    x: int = 1\n"],
)
def test_what_cannot_be_smaller_passes(source: str) -> None:
    assert not list(check_structure.complaints("m", ast.parse(source)))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('monkeypatch.setattr(module, "POLL_S", 0)', 1),
        ('patch.setattr("wallaroo.module.POLL_S", 0)', 1),
        ('patch.setattr(os, "fsync", fail)', 0),
        ('patch.setattr("wallaroo.module.os.fsync", fail)', 0),
        ('monkeypatch.setattr(module, "StateAt", Racing)', 0),
    ],
)
def test_a_constant_that_a_test_replaces_is_to_be_a_parameter(source: str, count: int) -> None:
    assert len(list(check_structure.replaced_constants("m", ast.parse(source)))) == count


def test_folders_of_tests_have_a_namesake(tmp_path: Path) -> None:
    for part in ("src/wallaroo/engine", "tests/unit/engine", "tests/unit/motor"):
        (tmp_path / part).mkdir(parents=True)
    (wrong,) = check_structure.check(tmp_path)
    assert wrong.startswith("tests/unit/motor: ")


def test_paths_of_the_page_are_there(tmp_path: Path) -> None:
    (tmp_path / "src" / "wallaroo" / "engine").mkdir(parents=True)
    (wrong,) = check_structure.missing(tmp_path, "`engine/` and `engine/gone.py` of `a`")
    assert wrong == "ARCHITECTURE.md: there is no engine/gone.py"


def test_each_exception_is_needed() -> None:
    for name in check_structure.LARGE:
        module, _, _ = name.rpartition(".")
        assert (check_structure.PACKAGE / Path(*module.split("."))).with_suffix(".py").exists(), (
            name
        )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('def f():\n    """What f does."""\n', "m:1: a docstring begins with 'What'"),
        ('class A:\n    """Of all a."""\n', "m:1: a docstring begins with 'Of'"),
        ('"""Where it is."""\n', "m:1: a docstring begins with 'Where'"),
        ("a = 1  # of b\n", "m:1: a comment begins with 'of'"),
    ],
)
def test_texts_of_the_wrong_form_are_refused(source: str, words: str) -> None:
    assert list(check_structure.wordings("m", source)) == [words]


def test_texts_of_the_right_form_pass() -> None:
    source = '"""Parts of a whole."""\n\ndef f():\n    """Return what is left."""  # often\n'
    assert list(check_structure.wordings("m", source)) == []


@pytest.mark.parametrize(("statements", "count"), [(4, 0), (5, 1)])
def test_a_participle_that_lives_for_long_is_to_be_renamed(statements: int, count: int) -> None:
    body = "\n".join(f"    x{number} = 1" for number in range(statements - 1))
    source = f"def f():\n    found = 1\n{body}\n    return found"
    assert len(list(check_structure.vague("m", ast.parse(source)))) == count
