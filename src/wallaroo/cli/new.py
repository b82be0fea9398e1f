"""``wallaroo new NAME``: a new application with its test and sample data."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from wallaroo.errors import PeerError, PipelineError, Problem

TEMPLATES = {
    "clicks": "counts per key, from a file (the default)",
    "kafka": "counts per key, from Kafka to Kafka, bad records apart",
    "windows": "counts per minute of the time that events carry",
    "vectorized": "state per key with functions that are called with many rows at once",
    "model": "a model that scores blocks of rows",
}
SUFFIX = ".tmpl"  # templates are not valid Python until the name is filled in


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "new",
        help="create a folder with an application, its test and sample data",
        description="Create a folder NAME with an application, its test and sample data.",
    )
    parser.add_argument(
        "name", metavar="NAME", help="name of the folder and of the application's module"
    )
    shown = "; ".join(f"{template}: {what}" for template, what in TEMPLATES.items())
    parser.add_argument(
        "--template", choices=TEMPLATES, default="clicks", metavar="TEMPLATE", help=shown
    )
    parser.set_defaults(handler=new_command)


def new_command(options: argparse.Namespace) -> None:
    """Write the files and print the commands that test and run them."""
    folder = Path(options.name)
    name = folder.name
    what = "" if folder.exists() else _refusal(name)
    if what:
        near = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")
        possible = (each for each in (near, f"my_{near}") if not _refusal(each))
        fix = f"Use letters, digits and underscores, such as {next(possible, 'clicks')}."
        raise PipelineError(Problem(f"wallaroo new {options.name}", "", what, fix))
    try:
        folder.mkdir(parents=True)
        for file, text in _files(options.template, name).items():
            (folder / file).write_text(text, encoding="utf-8")
    except FileExistsError:
        raise PeerError(f"{folder} already exists. Choose another name.") from None
    except OSError as error:
        raise PeerError(
            f"{folder} cannot be created: {error.strerror}. Go to a folder that you may write to."
        ) from error
    print(f"Created {folder} from the template {options.template}; its README.md describes it.\n")
    print(f"Test it:  python {folder / f'test_{name}.py'}")
    print(f"Run it:   wallaroo run {folder / f'{name}.py'}")
    print(f"\nWhile you change it: wallaroo dev {folder / f'{name}.py'}")


def _refusal(name: str) -> str:
    """Return the reason for which an application's module cannot have a name; empty if it can."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return f"'{name}' cannot be a module's name."
    if importlib.util.find_spec(name) is not None:
        return f"'{name}' is the name of a module that is installed."
    return ""


def _files(template: str, name: str) -> dict[str, str]:
    """Return the contents of a template's files, by their names in the new folder."""
    folder = resources.files("wallaroo").joinpath("cli", "templates", template)
    return {
        file.name.removesuffix(SUFFIX).replace("NAME", name): Template(
            file.read_text(encoding="utf-8")
        ).substitute(name=name)
        for file in folder.iterdir()
        if file.name.endswith(SUFFIX)
    }
