"""``scripts/setup`` with stand-ins for Python and uv: what it installs with, and what it shows."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]
DEADLINE_S = 400.0
OLDEST = "3.11.2"  # the Python of Debian 12
# Makes a .venv whose python is this very script, and answers as pip does.
PYTHON = r"""#!/bin/bash
echo "python $*" >> "$CALLS"
case "$*" in
    *--version*) echo "Python 3.11.0" ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    *"pip install"*pyspark)
        [ -z "$FAILS" ] || { echo "ERROR: No matching distribution found for pyspark"; exit 1; }
        echo "Collecting pyspark==4.3.0"
        echo "  Downloading pyspark-4.3.0.tar.gz (434.2 MB)"
        echo "Installing collected packages: py4j, pyspark, rich" ;;
esac
"""
UV = r"""#!/bin/bash
echo "uv $*" >> "$CALLS"
[ "$1" != venv ] || { mkdir -p .venv/bin; cp "$PYTHON" .venv/bin/python; }
"""
JAVA = "#!/bin/bash\necho 'openjdk version \"17.0.1\"' >&2\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "scripts").mkdir(parents=True)
    for name in ("setup", "lib.sh"):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts" / name)
    for name in ("constraints.txt", "pyproject.toml"):
        (folder / name).write_text("")
    (tmp_path / "bin").mkdir()
    for name, text in (("python3.11", PYTHON), ("java", JAVA)):
        program(tmp_path / "bin" / name, text)
    return folder


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def setup(clone: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    programs = clone.parent / "bin"
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "CALLS": str(clone.parent / "calls"),
        "PYTHON": str(programs / "python3.11"),
        "HOME": os.environ.get("HOME", "/"),
        **more,
    }
    return subprocess.run(
        ["bash", str(clone / "scripts" / "setup"), *options],
        env=environment, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def calls(clone: Path) -> str:
    return (clone.parent / "calls").read_text()


def archived(clone: Path) -> bool:
    """Whether the archive of classes is made, in the background, before the deadline."""
    end_s = time.monotonic() + DEADLINE_S
    while "doctor --faster-start" not in calls(clone) and time.monotonic() < end_s:
        time.sleep(0.02)
    return "python -m wallaroo doctor --faster-start" in calls(clone)


def test_with_pip_it_shows_what_is_fetched_and_how_long_it_took(clone: Path) -> None:
    done = setup(clone)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "Installing wallaroo-spark and what it needs with pip" in lines
    assert "  fetching pyspark-4.3.0.tar.gz (434.2 MB)" in lines
    assert "  installing 3 packages" in lines
    assert sum(line.startswith("  done in ") for line in lines) == 3
    assert archived(clone)


def test_with_uv_everything_is_installed_by_it(clone: Path) -> None:
    program(clone.parent / "bin" / "uv", UV)
    done = setup(clone)
    assert done.returncode == 0, done.stderr
    assert "uv venv" in calls(clone)
    command = "uv pip install --compile-bytecode --python .venv/bin/python --constraint"
    assert command in calls(clone)
    assert "-m pip" not in calls(clone)


def test_a_second_time_it_does_nothing(clone: Path) -> None:
    setup(clone)
    assert setup(clone).stderr == ""


def test_applications_need_no_packages_of_tests(clone: Path) -> None:
    setup(clone)
    assert "--requirement constraints.txt" not in calls(clone)


def test_tests_get_everything_once(clone: Path) -> None:
    setup(clone, "--tests")
    assert "--constraint constraints.txt uv" in calls(clone)
    done = setup(clone, "--tests")
    assert calls(clone).count("--requirement constraints.txt") == 1
    assert done.stderr == ""


def test_the_archive_of_classes_waits_for_the_next_setup_if_asked(clone: Path) -> None:
    setup(clone, "--archive-later")
    assert "faster-start" not in calls(clone)
    setup(clone)
    assert archived(clone)


def test_what_uv_cannot_install_is_left_to_pip(clone: Path) -> None:
    program(clone.parent / "bin" / "uv", UV + '[ "$1" = venv ]\n')
    done = setup(clone, "--tests")
    assert done.returncode == 0, done.stderr
    assert "uv pip install --compile-bytecode" in calls(clone)
    by_pip = [line for line in calls(clone).splitlines() if "-m pip install" in line]
    assert "--requirement constraints.txt" in by_pip[-1]


def test_an_option_that_is_none_is_named(clone: Path) -> None:
    done = setup(clone, "--test")
    assert (done.returncode, done.stderr) == (
        1,
        "error: --test is not an option of scripts/setup\n",
    )


def test_a_failure_of_pip_is_shown_and_ends_it(clone: Path) -> None:
    done = setup(clone, FAILS="1")
    assert done.returncode != 0
    assert "ERROR: No matching distribution found for pyspark" in done.stderr
    assert not (clone / ".venv" / "installed").exists()


def test_every_installed_version_can_be_installed_for_the_python_of_debian() -> None:
    wanted = {each.name: each.metadata["Requires-Python"] or "" for each in distributions()}
    refused = [name for name, python in wanted.items() if OLDEST not in SpecifierSet(python)]
    assert len(wanted) > 50
    assert refused == []
