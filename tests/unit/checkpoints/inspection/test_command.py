"""``wallaroo state`` as it is typed."""

from __future__ import annotations

import json
import re
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wallaroo.cli.main import build_parser

DOCS = Path(__file__).parents[4] / "docs" / "state.md"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def quotes(begin: Callable[..., Any], application: ModuleType) -> Any:
    """Three commits by an application that still holds the lock."""
    book = begin()
    book.write(
        {
            ("market", "AAPL"): application.Market(b"AAPL", 1.5),
            ("count", b"A\x00"): {"n": 1},
            ("count", 7): {"n": 1},
        }
    )
    book.write(
        {
            ("market", "AAPL"): application.Market(b"AAPL", 2.5),
            ("market", "MSFT"): application.Market(b"MSFT", 9.0),
        }
    )
    book.write({("count", 7): {"n": 2}, ("count", "7"): {"n": 3}})
    return book


def test_list_shows_steps_with_entries_and_bytes(quotes: Any, wallaroo: Command) -> None:
    code, out, _ = wallaroo("state", "list", "--checkpoint", quotes.root)
    assert code == 0
    assert "commit 2, 2023-11-14 22:13:22 UTC" in out
    assert re.search(r"^count +3 +\d+$", out, re.MULTILINE)
    assert re.search(r"^market +2 +\d+$", out, re.MULTILINE)


def test_list_of_a_step_shows_its_first_keys_and_how_many_there_are(
    quotes: Any, wallaroo: Command
) -> None:
    _, out, _ = wallaroo(
        "state", "list", "--checkpoint", quotes.root, "--step", "count", "--limit", "2"
    )
    assert [line.split()[0] for line in out.splitlines()[2:4]] == [r"b'A\x00'", "7"]
    assert "3 keys in step 'count'; the first 2 are shown" in out


def test_list_can_be_narrowed_to_a_prefix_and_an_older_commit(
    quotes: Any, wallaroo: Command
) -> None:
    _, out, _ = wallaroo(
        "state", "list", "--checkpoint", quotes.root, "--step", "market", "--prefix", "M"
    )
    assert "'MSFT'" in out
    assert "1 keys that begin with 'M'" in out
    assert "AAPL" not in out
    _, out, _ = wallaroo(
        "state", "list", "--checkpoint", quotes.root, "--step", "market", "--commit", "0"
    )
    assert "1 keys in step 'market'" in out


def test_list_commits_shows_what_each_batch_did(quotes: Any, wallaroo: Command) -> None:
    _, out, _ = wallaroo("state", "list", "--checkpoint", quotes.root, "--commits")
    rows = [re.split(r"  +", line) for line in out.splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        [str(batch), f"2023-11-14 22:13:2{batch} UTC", "Lines 7", f"out {batch}", entries]
        for batch, entries in ((0, "3"), (1, "2"), (2, "2"))
    ]
    sizes = [
        sum(delta["size"] for delta in _commit(quotes.root, batch)["deltas"]) for batch in range(3)
    ]
    assert [int(row[5]) for row in rows] == sizes


def _commit(root: Path, batch: int) -> Any:
    head, _, body = (root / "commits" / f"{batch:020d}.1").read_bytes().partition(b"\n")
    assert int(head.split()[2], 16) == zlib.crc32(body)
    return json.loads(body)


def test_get_shows_an_object_by_its_attributes_without_importing_its_application(
    quotes: Any, wallaroo: Command, forget: Callable[[], Path]
) -> None:
    mark = forget()
    code, out, _ = wallaroo("state", "get", "AAPL", "--checkpoint", quotes.root)
    assert code == 0
    assert out.startswith("step 'market', key 'AAPL' (str), commit 2, ")
    assert out.splitlines()[1:] == [
        "  quotes_application.Market",
        "    bid           2.5",
        "    is_rejecting  true",
        '    symbol        {"$bytes": "4141504c"}',
    ]
    assert not mark.exists()
    _, same, _ = wallaroo(
        "state", "get", "AAPL", "--checkpoint", quotes.root, "--app", mark.with_suffix(".py")
    )
    assert same == out
    assert mark.exists()


def test_get_reads_a_key_at_an_older_commit(quotes: Any, wallaroo: Command) -> None:
    _, out, _ = wallaroo(
        "state", "get", "AAPL", "--checkpoint", quotes.root, "--commit", "0", "--step", "market"
    )
    assert "bid           1.5" in out


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["7"], "key '7' (str)"),
        (["7", "--key-type", "int"], "key 7 (int)"),
        ([r"b'A\x00'"], r"key b'A\x00' (bytes)"),
        ([r"b'A\x00'", "--key-type", "bytes"], r"key b'A\x00' (bytes)"),
    ],
)
def test_get_takes_keys_of_every_type_plain_or_as_list_prints_them(
    quotes: Any, wallaroo: Command, arguments: list[str], shown: str
) -> None:
    assert shown in wallaroo("state", "get", *arguments, "--checkpoint", quotes.root)[1]


def test_tuples_as_keys_are_listed_found_and_exported(
    begin: Callable[..., Any], wallaroo: Command
) -> None:
    book = begin()
    book.write({("count", ("A", 7)): {"n": 4}, ("count", ("B", b"x")): {"n": 5}})
    at = ("--step", "count", "--checkpoint", book.root)

    _, listed, _ = wallaroo("state", "list", "--prefix", "A", *at)
    shown = [
        wallaroo("state", "get", "('A', 7)", *more, *at)[1]
        for more in ((), ("--key-type", "tuple"))
    ]
    _, exported, _ = wallaroo("state", "export", "--json", *at)

    assert "('A', 7)" in listed
    assert "('B'" not in listed
    assert [text.splitlines()[0].partition(", commit")[0] for text in shown] == [
        "step 'count', key ('A', 7) (tuple)"
    ] * 2
    rows = [json.loads(line) for line in exported.splitlines()]
    assert sorted((row["key"][0], row["key"][1], row["key_type"]) for row in rows) == [
        ("A", 7, "tuple"),
        ("B", {"$bytes": "78"}, "tuple"),
    ]


def test_export_writes_every_entry_as_a_line_of_json(
    quotes: Any, wallaroo: Command, tmp_path: Path
) -> None:
    out = tmp_path / "state.jsonl"
    assert wallaroo("state", "export", "--json", "--checkpoint", quotes.root, "--out", out) == (
        0,
        "",
        "",
    )
    rows = sorted(
        map(json.loads, out.read_text().splitlines()),
        key=lambda row: (row["step"], row["key_type"], str(row["key"])),
    )
    assert [(row["step"], row["key"], row["key_type"], row["class"]) for row in rows] == [
        ("count", {"$bytes": "4100"}, "bytes", "dict"),
        ("count", 7, "int", "dict"),
        ("count", "7", "str", "dict"),
        ("market", "AAPL", "str", "quotes_application.Market"),
        ("market", "MSFT", "str", "quotes_application.Market"),
    ]
    assert [row["value"] for row in rows[:4]] == [
        {"n": 1},
        {"n": 2},
        {"n": 3},
        {"bid": 2.5, "is_rejecting": True, "symbol": {"$bytes": "4141504c"}},
    ]


def test_export_of_one_step_and_commit_goes_to_standard_output(
    quotes: Any, wallaroo: Command
) -> None:
    _, out, _ = wallaroo(
        "state",
        "export",
        "--json",
        "--checkpoint",
        quotes.root,
        "--step",
        "market",
        "--commit",
        "0",
    )
    assert [json.loads(line)["key"] for line in out.splitlines()] == ["AAPL"]


def test_export_to_a_file_that_cannot_be_written_says_so(
    quotes: Any, wallaroo: Command, tmp_path: Path
) -> None:
    code, _, err = wallaroo(
        "state",
        "export",
        "--json",
        "--checkpoint",
        quotes.root,
        "--out",
        tmp_path / "none" / "file",
    )
    assert code == 1
    assert "cannot be written: No such file or directory. Choose another file with --out." in err


def test_diff_shows_what_was_added_changed_and_removed(quotes: Any, wallaroo: Command) -> None:
    _, out, _ = wallaroo("state", "diff", "--checkpoint", quotes.root, "--from", "0")
    lines = out.splitlines()
    assert lines[0] == "from commit 0 to commit 2"
    assert """~ 'count' 7  {"n": 1} -> {"n": 2}""" in lines
    assert """+ 'count' '7'  {"n": 3}""" in lines
    assert re.search(r"^count +1 +1 +0$", out, re.MULTILINE)
    assert re.search(r"^market +1 +1 +0$", out, re.MULTILINE)
    _, out, _ = wallaroo(
        "state", "diff", "--checkpoint", quotes.root, "--from", "2", "--to", "1", "--step", "count"
    )
    assert """- 'count' '7'  {"n": 3}""" in out.splitlines()
    assert "market" not in out


def test_diff_shows_a_step_that_only_the_newer_commit_has(
    begin: Callable[..., Any], wallaroo: Command
) -> None:
    book = begin(steps=("count",))
    book.write({("count", "a"): 1})
    book._steps = ("count", "later")
    book.write({("later", "a"): 2})
    _, out, _ = wallaroo(
        "state", "diff", "--checkpoint", book.root, "--from", "0", "--step", "later"
    )
    assert "+ 'later' 'a'  2" in out


def test_state_that_the_application_packs_itself_is_hex_until_the_application_is_given(
    begin: Callable[..., Any], wallaroo: Command, tmp_path: Path
) -> None:
    app = tmp_path / "packing_application.py"
    app.write_text(
        "import json\ndef serialize(value):\n    return json.dumps(value).encode()\n"
        "def deserialize(raw):\n    return json.loads(raw)\n"
    )
    book = begin(serializer=(lambda value: json.dumps(value).encode(), json.loads))
    book.write({("count", "a"): {"n": 1}})
    _, out, _ = wallaroo("state", "get", "a", "--checkpoint", book.root)
    assert b'{"n": 1}'.hex() in out
    assert "packed by the application itself" in out
    _, out, _ = wallaroo("state", "export", "--json", "--checkpoint", book.root)
    assert json.loads(out)["value"] == {"$packed": b'{"n": 1}'.hex()}
    _, out, _ = wallaroo("state", "get", "a", "--checkpoint", book.root, "--app", app)
    assert '{"n": 1}' in out


def test_an_application_that_cannot_read_the_state_is_an_error_that_names_key_and_step(
    quotes: Any, wallaroo: Command, forget: Callable[[], Path]
) -> None:
    app = forget().with_suffix(".py")
    app.write_text(
        "class Market:\n    def __setstate__(self, state):\n        raise KeyError('other')\n"
    )
    code, _, err = wallaroo("state", "get", "AAPL", "--checkpoint", quotes.root, "--app", app)
    assert code == 1
    assert "state of key 'AAPL' in step 'market' cannot be read with" in err
    assert "leave out --app" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "--commit", "9"], "commit 9 does not exist in {root}. Retained: 0 to 2."),
        (
            ["diff", "--from", "0", "--to", "5"],
            "commit 5 does not exist in {root}. Retained: 0 to 2.",
        ),
        (
            ["list", "--step", "markt"],
            "commit 2 has no state step 'markt'. Did you mean 'market'?",
        ),
        (
            ["list", "--step", "orders"],
            "commit 2 has no state step 'orders'. Its state steps: 'count', 'market'.",
        ),
        (
            ["get", "X", "--step", "count"],
            "step 'count' has no key 'X' at commit 2 (tried: str 'X', bytes b'X').",
        ),
        (["get", "8"], "no step has key '8' at commit 2 (tried: str '8', bytes b'8', int 8)."),
        (
            ["get", "X", "--key-type", "int"],
            "no step has key 'X' at commit 2 (tried: no int can be read from it).",
        ),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    quotes: Any, wallaroo: Command, arguments: list[str], text: str
) -> None:
    code, _, err = wallaroo("state", *arguments, "--checkpoint", quotes.root)
    assert code == 1
    assert text.format(root=quotes.root) in err


def test_a_folder_without_commits_says_to_look_again(
    begin: Callable[..., Any], wallaroo: Command
) -> None:
    code, _, err = wallaroo("state", "list", "--checkpoint", begin().root)
    assert code == 1
    assert "has no commit yet" in err


def test_the_commands_of_the_page_parse() -> None:
    blocks = re.findall(r"^```console\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    commands = [
        line.removeprefix("$ ")
        for block in blocks
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) >= 6
    for command in commands:
        assert build_parser().parse_args(shlex.split(command, comments=True)[1:]).handler
