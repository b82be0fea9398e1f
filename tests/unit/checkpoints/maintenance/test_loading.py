"""``wallaroo state load``: a step's state from a table, continued by runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.cli.application.loading import load_application
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.state.checkpoint import open_checkpoint

Command = Callable[..., tuple[int, str, str]]
APPLICATION = """
import dataclasses
import json

import wallaroo


@dataclasses.dataclass
class Total:
    count: int = 0
    amount: float = 0.0
    note: str = "new"


@wallaroo.key_extractor
def user(event):
    return event["user"]


@wallaroo.computation("parse")
def parse(line):
    return json.loads(line)


@wallaroo.state_computation("totals", state=Total)
def added(event, state):
    state.count += 1
    state.amount += event["amount"]
    return [event["user"], state.count, state.amount]


@wallaroo.encoder
def line(total):
    return (json.dumps(total) + "\\n").encode()


def application_setup(args):
    orders = wallaroo.source("orders", wallaroo.FileSourceConfig("orders", args[0]))
    sink = wallaroo.FileSinkConfig(args[1], line)
    totals = orders.to(parse).key_by(user).to(added).to_sink(sink)
    return wallaroo.build_application("totals", totals)
"""
USERS = [f"user {number}" for number in range(40)]


class Shop:
    """An application that reads orders, its checkpoint, and the command that loads state."""

    def __init__(self, folder: Path, wallaroo: Command):
        self.folder = folder
        self.root = folder / "checkpoint"
        self.app = folder / "loaded_totals.py"
        self.app.write_text(APPLICATION)
        self.arguments = [str(folder / "orders.jsonl"), str(folder / "out.jsonl")]
        self._wallaroo = wallaroo

    def load(
        self, table: Path, *more: str, key: str = "user", step: str = "totals"
    ) -> tuple[int, str, str]:
        return self._wallaroo(
            "state", "load", "--step", step, "--key", key, *more, self.root, table, self.app,
            *self.arguments,
        )  # fmt: skip

    def run(self, orders: int, first: int = 0) -> list[Any]:
        """Append orders, run to the end of the file, and return all outputs of the file."""
        with open(self.arguments[0], "a") as file:
            for number in range(first, first + orders):
                order = {"user": USERS[number * 7 % len(USERS)], "amount": number / 4}
                file.write(json.dumps(order) + "\n")
        application = load_application(str(self.app), self.arguments)
        options = RunOptions(checkpoint=self.root, status_address=None)
        run = Run(application, options, InProcessHost(2))
        run.start()
        assert run.wait(400)
        assert run.exception is None, run.exception
        return [json.loads(line) for line in Path(self.arguments[1]).read_text().splitlines()]

    @property
    def state(self) -> dict[Any, Any]:
        state = CheckpointReader(self.root).at()
        return {entry.key: state.forms.show(entry).value for entry in state.entries("totals")}


@pytest.fixture
def make(
    tmp_path: Path, wallaroo: Command, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Shop]]:
    monkeypatch.setattr(sys, "path", list(sys.path))

    def shop(name: str) -> Shop:
        sys.modules.pop("loaded_totals", None)
        (tmp_path / name).mkdir()
        return Shop(tmp_path / name, wallaroo)

    yield shop
    sys.modules.pop("loaded_totals", None)


@pytest.fixture
def shop(make: Callable[[str], Shop]) -> Shop:
    return make("shop")


def totals(orders: int) -> pa.Table:
    """Compute the totals of the first orders as a table."""
    rows: dict[str, dict[str, Any]] = {}
    for number in range(orders):
        user = USERS[number * 7 % len(USERS)]
        row = rows.setdefault(user, {"user": user, "count": 0, "amount": 0.0})
        row["count"] += 1
        row["amount"] += number / 4
    return pa.Table.from_pylist(list(rows.values()))


def as_csv(table: pa.Table, folder: Path) -> Path:
    pyarrow.csv.write_csv(table, folder / "totals.csv")
    return folder / "totals.csv"


def as_lines(table: pa.Table, folder: Path) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    (folder / "totals.jsonl").write_text(lines)
    return folder / "totals.jsonl"


def as_parquet(table: pa.Table, folder: Path) -> Path:
    (folder / "totals").mkdir()
    pyarrow.parquet.write_table(table.slice(0, 9), folder / "totals" / "a.parquet")
    pyarrow.parquet.write_table(table.slice(9), folder / "totals" / "b.parquet")
    return folder / "totals"


def as_delta(table: pa.Table, folder: Path) -> Path:
    write_deltalake(str(folder / "delta"), table)
    return folder / "delta"


@pytest.mark.parametrize("form", [as_csv, as_lines, as_parquet, as_delta])
def test_runs_continue_from_loaded_totals_as_from_computed_ones(
    make: Callable[[str], Shop], form: Callable[[pa.Table, Path], Path]
) -> None:
    loaded = make("loaded")
    code, out, err = loaded.load(form(totals(200), loaded.folder))
    assert (code, out) == (0, "loaded 40 keys into step 'totals' as commit 0\n"), err
    loaded.run(100, first=200)
    continued = loaded.run(60, first=300)  # a restart

    computed = make("computed")
    computed.run(200)
    computed.run(100, first=200)
    assert continued == computed.run(60, first=300)[200:]
    assert loaded.state == computed.state
    assert len(loaded.state) == 40


def test_state_that_is_there_is_kept_or_removed_as_is_said(shop: Shop) -> None:
    shop.run(4)  # user 0, 7, 14 and 21
    table = shop.folder / "more.jsonl"
    table.write_text('{"user": "user 0", "count": 9}\n{"user": "user 1", "count": 8}\n')
    code, _, err = shop.load(table)
    assert code == 1
    assert "has state of 4 keys" in err
    assert "--merge keeps that of keys that the table lacks, --replace removes it" in err
    assert {key: state["count"] for key, state in shop.state.items()} == {
        f"user {number}": 1 for number in (0, 7, 14, 21)
    }

    assert shop.load(table, "--merge")[0] == 0
    counts = {key: state["count"] for key, state in shop.state.items()}
    assert counts == {"user 0": 9, "user 1": 8, "user 7": 1, "user 14": 1, "user 21": 1}
    assert shop.state["user 1"] == {"count": 8, "amount": 0.0, "note": "new"}

    assert shop.load(table, "--replace")[0] == 0
    assert set(shop.state) == {"user 0", "user 1"}
    assert shop.run(1)[-1] == ["user 0", 10, 0.0]


@pytest.mark.parametrize(
    ("lines", "more", "what"),
    [
        ('{"user": "a", "count": "many"}', (), "row 1, column 'count': 'many' does not fit"),
        ('{"user": "a", "coutn": 1}', (), "column 'coutn' is not an attribute of Total, which has"),
        ('{"user": 1.5, "count": 1}', (), "keys are str, bytes or int"),
        ('{"name": "a"}', (), "the table has no column 'user' for the key"),
        ('{"user": "a"}\n{"user": "a"}', (), "row 2 has key 'a', as a row before it"),
        ('{"user": "a"}', ("--step", "total"), "step 'total' keeps no state objects"),
    ],
)
def test_tables_that_do_not_fit_are_refused_and_nothing_is_loaded(
    shop: Shop, lines: str, more: tuple[str, ...], what: str
) -> None:
    table = shop.folder / "table.jsonl"
    table.write_text(lines + "\n")
    code, _, err = shop.load(table, *more)
    assert (code, what in err) == (1, True), err
    assert not list(shop.root.glob("commits/*"))
    assert not list(shop.root.glob("deltas/*"))


def test_a_key_may_be_a_tuple_of_columns(shop: Shop) -> None:
    table = shop.folder / "table.jsonl"
    table.write_text('{"user": "a", "shop": 7, "count": 3}\n')
    assert shop.load(table, "--key", "shop")[0] == 0
    assert shop.state == {("a", 7): {"count": 3, "amount": 0.0, "note": "new"}}


def test_keys_of_csv_have_the_type_that_is_said(shop: Shop) -> None:
    """A text of digits is no number: its leading zeros distinguish it."""
    table = shop.folder / "table.csv"
    table.write_text("user,count\n0042,3\n42,4\n")
    code, _, err = shop.load(table)
    assert (code, "--key-type int or --key-type str" in err) == (1, True), err
    assert not list(shop.root.glob("commits/*"))
    code, _, err = shop.load(table, "--key-type", "int")
    assert (code, "row 2 has key 42, as a row before it" in err) == (1, True), err
    assert shop.load(table, "--key-type", "str")[0] == 0
    assert {key: state["count"] for key, state in shop.state.items()} == {"0042": 3, "42": 4}


def test_parts_of_a_key_of_csv_have_types_of_their_own(shop: Shop) -> None:
    table = shop.folder / "table.csv"
    table.write_text("user,shop,count\n007,7,3\n")
    types = ("--key-type", "str", "--key-type", "int")
    assert shop.load(table, "--key", "shop", *types)[0] == 0
    assert [*shop.state] == [("007", 7)]


def test_a_table_that_states_its_types_takes_none(shop: Shop) -> None:
    table = as_parquet(totals(12), shop.folder)
    code, _, err = shop.load(table, "--key-type", "int")
    assert (code, "--key-type is for CSV" in err) == (1, True), err


def test_state_that_expires_is_refused(shop: Shop) -> None:
    shop.app.write_text(
        APPLICATION.replace("state=Total)", "state=Total, ttl=wallaroo.minutes(9))")
    )
    code, _, err = shop.load(as_lines(totals(3), shop.folder))
    assert (code, "the state of step 'totals' expires" in err) == (1, True), err


def test_a_step_without_state_objects_of_its_own_is_refused(shop: Shop) -> None:
    shop.app.write_text(
        APPLICATION.replace(
            ".key_by(user).to(added)",
            ".key_by(user).dedupe(within=wallaroo.seconds(9), name='once').to(added)",
        )
    )
    code, _, err = shop.load(as_lines(totals(3), shop.folder), step="once")
    assert code == 1
    assert "step 'once' keeps no state objects" in err
    assert "Steps that do: 'totals'." in err


def test_a_table_of_no_known_form_is_refused(shop: Shop) -> None:
    code, _, err = shop.load(shop.folder / "totals.xlsx")
    assert code == 1
    assert "the form of table" in err
    code, _, err = shop.load(shop.folder / "none.csv")
    assert code == 1
    assert "none.csv cannot be read" in err


def test_a_run_that_has_the_checkpoint_is_named(shop: Shop) -> None:
    table = as_lines(totals(3), shop.folder)
    running = open_checkpoint(shop.root, is_durable=False)
    code, _, err = shop.load(table)
    running.release()
    assert (code, "is in use by process" in err) == (1, True)


@pytest.mark.parametrize(("point", "keys"), [("load.before", 0), ("load.after", 40)])
def test_a_load_that_is_killed_has_happened_or_not(
    shop: Shop, killed: Callable[..., None], point: str, keys: int
) -> None:
    table = as_lines(totals(100), shop.folder)
    killed(f"{point}:1", "state", "load", "--step", "totals", "--key", "user", shop.root, table,
           shop.app, *shop.arguments)  # fmt: skip
    log = open_checkpoint(shop.root, is_durable=False)
    log.release()
    assert (len(shop.state) if log.last else 0) == keys
    assert shop.load(table, "--replace")[0] == 0
    assert len(shop.state) == 40
