"""What is said of an application whose modules a worker cannot import."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from wallaroo.runtime.tasks.job import import_error

SESSION = 'raise RuntimeError("[CONTEXT_ONLY_VALID_ON_DRIVER] It appears that ...")'
UNDER_MAIN = "Put the call under: if __name__ == '__main__':"


def imported(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Exception:
    """The exception that the import of a module raises."""
    (folder / "lacking.py").write_text(f"import configparser, os\n{code}\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(Exception) as raised:  # each of them is another one
        importlib.import_module("lacking")
    return raised.value


@pytest.mark.parametrize(
    ("code", "is_local", "words"),
    [
        ("os.environ['KEY']", False, "lacking.py:2: KeyError: 'KEY'. Workers have neither this"),
        ("os.environ['KEY']", True, f"KeyError: 'KEY'. Workers import it, too. {UNDER_MAIN}"),
        ("open('config.ini')", False, "lacking.py:2: FileNotFoundError: [Errno 2] No such file"),
        ("configparser.ConfigParser()['x']", False, "lacking.py:2: KeyError: 'x'. Workers have"),
        ("None.upper()", False, "attribute 'upper'. Workers have neither this shell's"),
        ("import not_here", False, "No module named 'not_here'. Install what it imports on every"),
        (SESSION, True, f"lacking.py:2: a SparkSession was opened while a worker imported this "
         f"module. {UNDER_MAIN}"),
    ],
)  # fmt: skip
def test_an_import_that_fails_in_a_worker_has_its_line_and_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, is_local: bool, words: str
) -> None:
    said = str(import_error(imported(code, tmp_path, monkeypatch), "worker-2", is_local))
    assert said.startswith("the application cannot be imported on host 'worker-2': ")
    assert words in said


def test_errors_outside_of_the_application_are_not_an_imports() -> None:
    assert import_error(ValueError("ours"), "worker-2", False) is None
    gone = AttributeError("Can't get attribute 'f' on <module 'app'>")
    assert "Install what it imports" in str(import_error(gone, "worker-2", False))
