"""The wheel, as ``pip install`` builds it: it has all files of the package, and what it brings
along works without the source tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from wallaroo.cli.new import TEMPLATES

ROOT = Path(__file__).parents[3]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
PACKED = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in PACKED:
        shutil.copy(ROOT / name, source)
    without = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=without)
    done = _executed(["-c", BUILD, str(folder)], source, ROOT / "src")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def _executed(
    arguments: list[str], folder: Path, packages: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with the packages of another one."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def test_it_has_every_file_of_the_package(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        return {
            str(path.relative_to(root))
            for path in (root / "wallaroo").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    assert files(installed) == files(ROOT / "src")


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_of_it_makes_an_application_whose_test_passes(
    installed: Path, template: str, tmp_path: Path
) -> None:
    new = ["-m", "wallaroo", "new", "own", "--template", template]
    made = _executed(new, tmp_path, installed)
    assert made.returncode == 0, made.stderr

    tested = _executed(["own/test_own.py"], tmp_path, installed)

    assert (tested.returncode, tested.stderr) == (0, "")
    assert tested.stdout.endswith("passed\n")
