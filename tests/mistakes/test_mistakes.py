"""Every mistake that a newcomer made in his first hour has a row, and its message says what is
wrong, where, and how to fix it.

The tables are ``before_spark.py`` (answered before Spark starts), ``while_running.py`` (answered
when an event comes), ``meanings.py`` and ``everyday.py`` (both, of later trials) and
``elsewhere.py``: mistakes that need real processes or a terminal, and the bugs that were found in
that hour, each with its test.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mistakes import before_spark, elsewhere, everyday, meanings, while_running
from tests.mistakes.mistake import Mistake, framed
from wallaroo.cli import in_process
from wallaroo.cli.main import main
from wallaroo.spark.jvm import jvm_process
from wallaroo.spark.session import host_session

ROOT = Path(__file__).parents[2]
BEFORE_SPARK = *before_spark.MISTAKES, *meanings.BEFORE_SPARK, *everyday.BEFORE_SPARK
WHILE_RUNNING = *while_running.MISTAKES, *meanings.WHILE_RUNNING, *everyday.WHILE_RUNNING


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path: Path) -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def answer(
    mistake: Mistake,
    run: Callable[[list[str]], int],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str]:
    """Make the mistake; return the exit code and the last words."""

    def placed(text: str) -> str:
        return text.replace("FOLDER", str(folder))

    app = folder / mistake.name
    for name, text in {"in.txt": mistake.lines, **mistake.files, app.name: mistake.app}.items():
        file = folder / name
        if file.exists():
            continue
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    monkeypatch.chdir(folder)
    for name, value in mistake.environment.items():
        monkeypatch.setenv(name, placed(value))
    words = [*map(placed, mistake.options), str(app), *map(placed, mistake.arguments)]
    code = run(words)
    return code, capsys.readouterr().err


def check(mistake: Mistake, code: int, said: str, app: Path) -> None:
    """One text, with everything that it has to say, and no traceback."""
    for part in mistake.wanted(app):
        assert part.replace("FOLDER", str(app.parent)) in said, said
    assert said.count("wallaroo: error: ") == 1, said
    assert "Traceback" not in said
    assert code == mistake.code


@pytest.mark.parametrize("mistake", BEFORE_SPARK, ids=lambda row: f"{row.number} {row.what}")
def test_a_mistake_is_answered_before_spark_starts(
    mistake: Mistake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def started(*arguments: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(jvm_process, "begin_jvm", lambda name, options: None)
    monkeypatch.setattr(host_session, "open_context", started)

    def run(words: list[str]) -> int:
        return main(["run", "--no-live", *words])

    code, said = answer(mistake, run, tmp_path, monkeypatch, capsys)
    check(mistake, code, said, tmp_path / mistake.name)


@pytest.mark.parametrize("mistake", WHILE_RUNNING, ids=lambda row: f"{row.number} {row.what}")
def test_a_mistake_is_answered_when_its_event_comes(
    mistake: Mistake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = answer(mistake, in_this_process, tmp_path, monkeypatch, capsys)
    check(mistake, code, said, tmp_path / mistake.name)


def test_a_port_that_is_taken_is_named_once_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        mistake = Mistake(
            "15",
            "a port that another program has",
            before_spark.WORD_COUNT,
            (f"source 'Lines' cannot listen on 127.0.0.1:{port}: Address already in use", "Stop"),
            1,
            arguments=("--in", f"Lines@127.0.0.1:{port}"),
        )
        code, said = answer(mistake, in_this_process, tmp_path, monkeypatch, capsys)
    check(mistake, code, said, tmp_path / mistake.name)
    assert said.count("cannot listen") == 1


def test_letters_of_any_language_arrive_and_invalid_ones_are_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = (
        framed("")
        .replace('"in.txt"', '"in.txt", decode')
        .replace(
            "import wallaroo\n",
            "import wallaroo\n@wallaroo.decoder(on_error='skip')\ndef decode(payload):\n"
            "    return payload.decode() + '\\n'\n",
        )
        .replace('FileSinkConfig("out")', 'FileSinkConfig("out.txt", wallaroo.encoder(str))')
    )
    mistake = Mistake("33", "bytes that are no text", app, ())
    (tmp_path / "in.txt").write_bytes("grüße\n".encode() + b"\xff\n" + "🦘\n".encode())
    code, said = answer(mistake, in_this_process, tmp_path, monkeypatch, capsys)
    assert code == 0, said
    assert (tmp_path / "out.txt").read_text() == "grüße\n🦘\n"
    assert "1 of decode" in said or "decode" in said


def in_this_process(words: list[str]) -> int:
    """``wallaroo run`` with its batches in this process."""
    return in_process.main(["--no-live", "--status", "off", *words])


def test_every_mistake_and_every_bug_has_its_test() -> None:
    rows = [row.number for row in (*before_spark.MISTAKES, *while_running.MISTAKES)]
    assert len(rows) == len(set(rows))
    assert _numbers((*rows, *elsewhere.MISTAKES)) == set(range(1, 42))
    later = [row.number for row in (*meanings.BEFORE_SPARK, *meanings.WHILE_RUNNING)]
    assert len(later) == len(set(later))
    assert _numbers((*later, *elsewhere.LATER)) == set(range(1, 55))
    tables = elsewhere.MISTAKES, elsewhere.BUGS, elsewhere.LATER
    for test in (test for table in tables for test in table.values()):
        if isinstance(test, str):
            assert test.removeprefix("ROW ") in rows
            continue
        file, name = test
        assert f"def {name}(" in (ROOT / file).read_text(), test


def _numbers(names: Iterable[str]) -> set[int]:
    """Return the numbers of rows without the letters after them."""
    return {int(re.sub(r"\D", "", name)) for name in names}
