"""Which archives of classes stay when one is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from wallaroo.cli.doctor.faster_start import KEPT, forget_old


def test_the_newest_archives_and_those_being_written_stay(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    names = [f"spark-classes-{number}-1.jsa" for number in range(KEPT + 2)]
    for age, name in enumerate(reversed(names)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    (tmp_path / f".spark-classes-x.{os.getpid()}").touch()
    (tmp_path / f".spark-classes-x.{ended.pid}").touch()

    forget_old(tmp_path)

    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {*names[:KEPT], f".spark-classes-x.{os.getpid()}"}
