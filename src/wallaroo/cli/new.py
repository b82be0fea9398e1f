"""``wallaroo new NAME``: a folder with a new application, its test and sample data.

Where it runs: a terminal.
"""

from __future__ import annotations

import argparse
import keyword
from pathlib import Path
from string import Template
from typing import Any

from wallaroo.errors import PeerError, PipelineError, Problem

APPLICATION = '''"""Counts clicks per user: lines such as "ada /home" in, "ada has 1 click" out."""

import argparse
from pathlib import Path

import wallaroo


class Clicks:
    """The state of one user; it is saved after every batch."""

    def __init__(self):
        self.count = 0


@wallaroo.computation
def parse(line):
    user, _, page = line.partition(" ")
    return (user, page) if page else None  # None: drop this event


@wallaroo.key_extractor
def user(click):
    return click[0]


@wallaroo.state_computation(state=Clicks)
def count(click, clicks):
    clicks.count += 1
    return f"{click[0]} has {clicks.count} click{'' if clicks.count == 1 else 's'}"


@wallaroo.encoder
def encode(text):
    return text


def application_setup(args):
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", default=str(Path(__file__).with_name("$name.txt")))
    options, _ = parser.parse_known_args(args)
    counts = (
        wallaroo.source("Clicks", wallaroo.FileSourceConfig("clicks", options.file))
        .to(parse)
        .key_by(user)
        .to(count)
        .to_sink(wallaroo.StdoutSinkConfig(encode))
    )
    return wallaroo.build_application("$name", counts)
'''

TEST = '''"""Runs the application in this process, without Spark.

Run it with `python $name/test_$name.py`, or pytest.
"""

from wallaroo.testing import run_local

from $name import application_setup


def test_clicks_are_counted_per_user():
    app = application_setup([])
    run = run_local(app, {"clicks": ["ada /home", "bob /home", "ada /shop", "not a click?", "x"]})
    assert "ada has 2 clicks\\n" in run.text
    assert "bob has 1 click\\n" in run.text
    assert run.state("count")["ada"].count == 2


if __name__ == "__main__":
    test_clicks_are_counted_per_user()
    print("1 test passed")
'''

DATA = "ada /home\nbob /home\nada /shop\nada /cart\nbob /help\n"


def add_parser(subparsers: Any) -> None:
    """Add ``new`` to the commands."""
    parser = subparsers.add_parser(
        "new",
        allow_abbrev=False,
        help="make a folder with an application, its test and sample data",
        description="Make a folder NAME with an application, its test and sample data.",
    )
    parser.add_argument("name", metavar="NAME", help="of the folder and the application's module")
    parser.set_defaults(handler=new_command)


def new_command(options: argparse.Namespace) -> None:
    """Write the files and print the commands that test and run them."""
    folder = Path(options.name)
    name = folder.name
    if not name.isidentifier() or keyword.iskeyword(name):
        near = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")
        raise PipelineError(
            Problem(
                f"wallaroo new {options.name}",
                "",
                f"'{name}' cannot be a module's name.",
                f"Use letters, digits and underscores, such as {near or 'clicks'}.",
            )
        )
    try:
        folder.mkdir(parents=True)
        for file, text in (
            (f"{name}.py", APPLICATION),
            (f"test_{name}.py", TEST),
            (f"{name}.txt", DATA),
        ):
            (folder / file).write_text(Template(text).substitute(name=name), encoding="utf-8")
    except FileExistsError:
        raise PeerError(f"{folder} is there already. Choose another name.") from None
    except OSError as error:
        raise PeerError(
            f"{folder} cannot be made: {error.strerror}. Go to a folder that you may write to."
        ) from error
    print(f"Made {folder} with {name}.py, test_{name}.py and {name}.txt.\n")
    print(f"Test it:  python {folder / f'test_{name}.py'}")
    print(f"Run it:   wallaroo run {folder / f'{name}.py'}")
    print(f"\nWhile you change it: wallaroo dev {folder / f'{name}.py'}")
