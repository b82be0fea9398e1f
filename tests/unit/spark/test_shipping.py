"""What is sent to other hosts."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from wallaroo.errors import PeerError
from wallaroo.spark.session import shipping


class Context:
    """Keeps what it is given to ship."""

    def __init__(self) -> None:
        self.files: list[Path] = []

    def addPyFile(self, path: str) -> None:
        self.files.append(Path(path))


def project(folder: Path) -> Path:
    (folder / "lib" / "deep").mkdir(parents=True)
    (folder / "notes").mkdir()
    (folder / "lib" / "__init__.py").write_text("")
    (folder / "lib" / "deep" / "__init__.py").write_text("FACTOR = 7\n")
    (folder / "lib" / "table.csv").write_text("1,2\n")
    (folder / "lib" / ".hidden").write_text("secret")
    (folder / "notes" / "readme.txt").write_text("no package")
    (folder / "app.py").write_text(
        "import helper\nfrom lib.deep import FACTOR\nprint(helper.twice(FACTOR))\n"
    )
    (folder / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (folder / "broken.py").write_text("def (:\n")
    return folder


def shipped(tmp_path: Path) -> list[Path]:
    context, target = Context(), tmp_path / "target"
    target.mkdir()
    shipping.ship(context, [str(project(tmp_path / "project"))], target)  # type: ignore[arg-type]
    return context.files


def test_an_application_runs_from_what_was_shipped_alone(tmp_path: Path) -> None:
    package, application = shipped(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-P", "-c", (
            f"import sys; sys.path.insert(0, {str(application)!r}); "
            f"import app"
        )],
        capture_output=True, text=True, cwd="/", check=True,
    )  # fmt: skip
    assert ran.stdout == "14\n"
    found = subprocess.run(
        [sys.executable, "-P", "-c", (
            f"import sys; sys.path.insert(0, {str(package)!r}); import "
            f"wallaroo.runtime.tasks.task as w; print(w.__file__)"
        )],
        capture_output=True, text=True, cwd="/", check=True,
    )  # fmt: skip
    assert found.stdout.startswith(str(package))


def test_modules_and_packages_go_and_nothing_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(shipped(tmp_path)[1]) as content:
        names = set(content.namelist())
    sources = {name for name in names if not name.endswith(".pyc")}
    assert sources == {
        "app.py",
        "broken.py",
        "helper.py",
        "lib/__init__.py",
        "lib/deep/__init__.py",
        "lib/table.csv",
    }
    assert names - sources == {"app.pyc", "helper.pyc", "lib/__init__.pyc", "lib/deep/__init__.pyc"}


def test_a_folder_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("x = 1  # more than ten bytes\n")
    with pytest.raises(PeerError, match="folder of its own"):
        list(shipping.modules_in(tmp_path, bytes_max=10))
