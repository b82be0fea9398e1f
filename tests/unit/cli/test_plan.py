"""``wallaroo plan``: the verdict on an application and a checkpoint that a run holds."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from wallaroo.checkpoints.inspection.compatibility import check_compatibility
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.main import main
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.layout import read_plan

STATES = "class Count:\n    pass\n\nclass Other:\n    pass\n"
APPLICATION = """
import wallaroo
from plan_states import Count, Other


@wallaroo.computation("{stateless}")
def same(event):
    return event


@wallaroo.key_extractor
def key_of(event):
    return event


@wallaroo.state_computation("{stateful}", state={state})
def counted(event, state):
    return event


def application_setup(args):
    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", "in.txt"))
    words = lines.to(same).key_by(key_of).to(counted)
    return wallaroo.build_application("judged", words.to_sink(wallaroo.StdoutSinkConfig()))
"""

Write = Callable[..., Path]
Plan = Callable[..., tuple[int, str]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write an application; each has a module of its own, the state classes are all the same
    module's.
    """
    (tmp_path / "plan_states.py").write_text(STATES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(
        name: str, stateless: str = "same", stateful: str = "count", state: str = "Count"
    ) -> Path:
        file = tmp_path / f"{name}.py"
        file.write_text(APPLICATION.format(stateless=stateless, stateful=stateful, state=state))
        return file

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("plan_"):
            del sys.modules[name]


@pytest.fixture
def held(tmp_path: Path, write: Write) -> Iterator[Checkpoint]:
    """A checkpoint with one commit, locked as by a run."""
    plan = load_application(str(write("plan_first")), []).plan
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    check_compatibility(checkpoint, plan, allow_incompatible=False)
    checkpoint.commits.publish(
        Commit(41, {"lines": [10, 2]}, steps=("count",), checkpoint=checkpoint.id, id="a")
    )
    yield checkpoint
    checkpoint.release()


@pytest.fixture
def plan(held: Checkpoint, capsys: pytest.CaptureFixture[str]) -> Plan:
    """Run the command; return its exit code and what it printed."""

    def run(*arguments: object) -> tuple[int, str]:
        code = main(["plan", *map(str, arguments), "--checkpoint", str(held.root)])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


def test_the_application_that_made_it_is_compatible(
    plan: Plan, held: Checkpoint, write: Write
) -> None:
    assert plan(write("plan_same")) == (0, f"checkpoint {held.root}, commit 41: compatible\n")


def test_a_new_stateless_step_is_compatible_and_named(
    plan: Plan, held: Checkpoint, write: Write
) -> None:
    code, text = plan(write("plan_more", stateless="strip"))
    assert code == 0
    assert text.startswith(f"checkpoint {held.root}, commit 41: compatible with changes\n  - ")
    assert "Step 'strip' is new." in text
    assert "Step 'same' is gone" in text


def test_another_state_class_is_incompatible_by_step_and_class(plan: Plan, write: Write) -> None:
    code, text = plan(write("plan_other", state="Other"))
    assert code == 1
    assert (
        "incompatible\n  - The state of step 'count' is of class plan_states.Count, now it is of "
        "class plan_states.Other." in text
    )
    assert "--allow-incompatible continues and drops exactly what is listed here" in text


def test_other_key_groups_are_incompatible_and_nothing_helps(plan: Plan, write: Write) -> None:
    code, text = plan(write("plan_groups"), "--key-groups", "64")
    assert code == 1
    assert "laid out in 128 key groups, this plan has 64" in text
    assert "the number of key groups cannot change" in text


def test_output_that_waits_is_not_read_in_another_form(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given rows that wait for a sink of rows, then it cannot become a sink of lines."""
    file = write("plan_reformed")
    text = file.read_text()
    rows = "sinks.RollingSinkConfig('out', columns={'n': 'int64'})"
    file.write_text(text.replace("StdoutSinkConfig()", rows))
    checkpoint = open_checkpoint(tmp_path / "rows", is_durable=False)
    check_compatibility(checkpoint, load_application(str(file), []).plan, allow_incompatible=False)
    checkpoint.commits.publish(
        Commit(41, {"lines": [10, 2]}, steps=("count",), checkpoint=checkpoint.id, id="a")
    )
    pending = checkpoint.root / "outbox" / "rolling" / "pending"
    pending.mkdir(parents=True)
    (pending / "41.json").touch()
    lines = write("plan_lines")
    lines.write_text(text.replace("StdoutSinkConfig()", "sinks.RollingSinkConfig('out')"))
    code = main(["plan", str(lines), "--checkpoint", str(checkpoint.root)])
    printed = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert "wrote the columns n int64 and writes lines now" in printed
    assert "output that waits for sink 'rolling' cannot be read in another form" in printed
    checkpoint.release()


def test_the_checkpoint_of_another_application_lists_what_would_be_dropped(
    plan: Plan, write: Write
) -> None:
    renamed = write("plan_name")
    renamed.write_text(renamed.read_text().replace('"judged"', '"other"'))
    code, text = plan(renamed)
    assert code == 1
    assert (
        "  - It belongs to the application 'judged', this is 'other'. If that is its new name, "
        "nothing is lost by it: only what else is listed here would be dropped.\nA run" in text
    )

    another = write("plan_another", stateful="total")
    another.write_text(another.read_text().replace('"judged"', '"other"'))
    code, text = plan(another)
    assert "State step 'count' is gone or renamed: its state would be lost." in text


def test_json_says_the_same_to_a_program(plan: Plan, held: Checkpoint, write: Write) -> None:
    code, text = plan(write("plan_renamed", stateful="total"), "--json")
    assert code == 1
    facts = json.loads(text)
    assert facts.pop("reasons") == [
        "State step 'count' is gone or renamed: its state would be lost. If it was renamed, "
        "rename its state, too: `wallaroo state rename CHECKPOINT count NEW`."
    ]
    assert facts == {
        "checkpoint": str(held.root),
        "commit": 41,
        "verdict": "incompatible",
        "can_drop": True,
        "dropped_states": ["count"],
        "attributes": {},
    }


def test_nothing_is_touched(plan: Plan, held: Checkpoint, write: Write) -> None:
    """Not even where the application has changed: the run that holds it goes on undisturbed."""
    before = everything(held.root)
    plan(write("plan_touch", stateful="total"))
    assert everything(held.root) == before


def test_neither_spark_nor_anything_of_it_is_imported(held: Checkpoint, write: Write) -> None:
    program = (
        "import sys; from wallaroo.cli.main import main; code = main(sys.argv[1:]);"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'py4j')]); "
        "sys.exit(code)"
    )
    command = [
        sys.executable,
        "-c",
        program,
        "plan",
        str(write("plan_alone")),
        "--checkpoint",
        str(held.root),
    ]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=400
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr


def test_before_the_first_commit_anything_fits(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = open_checkpoint(tmp_path / "empty", is_durable=False)
    check_compatibility(
        empty, load_application(str(write("plan_begun")), []).plan, allow_incompatible=False
    )
    assert (
        main(
            ["plan", str(write("plan_anything", stateful="total")), "--checkpoint", str(empty.root)]
        )
        == 0
    )
    assert "compatible\n  - Nothing is committed yet" in capsys.readouterr().out
    empty.release()


def test_a_folder_that_is_no_checkpoint_is_named(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["plan", str(write("plan_nowhere")), "--checkpoint", str(tmp_path / "nowhere")]) == 1
    )
    assert "nowhere is not a checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_plan_is_named_with_the_ways_out(
    plan: Plan, held: Checkpoint, write: Write
) -> None:
    (held.root / "plan.json").write_text('{"format": 1')
    code, text = plan(write("plan_damaged"))
    assert code == 1
    assert "plan.json is damaged. Restore it from a backup of the checkpoint, or remove it" in text


def test_any_damaged_bit_of_a_plan_is_named_and_none_is_compared(
    plan: Plan, held: Checkpoint, write: Write
) -> None:
    """One in a sink's name would otherwise give that sink's output to another one."""
    file = held.root / "plan.json"
    written = file.read_bytes()
    noted = json.loads(read_plan(held.root))
    for byte in range(len(written)):
        file.write_bytes(bytes([*written[:byte], written[byte] ^ 1, *written[byte + 1 :]]))
        with contextlib.suppress(ValueError):  # else a space, or the checksum's name
            found = json.loads(read_plan(held.root))
            assert {name: found.get(name) for name in noted} == noted
    file.write_bytes(written.replace(b'"key_groups": 1', b'"key_groups": 2'))
    code, text = plan(write("plan_flipped"))
    assert code == 1
    assert "plan.json is damaged. Restore it from a backup of the checkpoint, or remove it" in text


def test_without_a_kept_plan_nothing_is_compared(
    plan: Plan, held: Checkpoint, write: Write
) -> None:
    (held.root / "plan.json").unlink()
    code, text = plan(write("plan_unkept", stateful="total"))
    assert code == 0
    assert "There is no plan.json beside it" in text


def test_the_checkpoint_must_be_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", str(write("plan_unnamed"))])
    assert "--checkpoint DIR is missing" in capsys.readouterr().err


def test_a_run_judges_as_the_command_said(held: Checkpoint, write: Write) -> None:
    """One comparison serves both."""
    application = load_application(str(write("plan_run", state="Other")), [])
    judgement = check_compatibility(
        replace(held, last=held.commits.last()), application.plan, allow_incompatible=True
    )
    assert judgement.dropped == {"count"}
