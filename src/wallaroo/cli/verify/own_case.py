"""Cases of users' own applications, with an oracle or with input."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from wallaroo.cli.verify.arguments import wrong
from wallaroo.testing.verify.baseline import Observed
from wallaroo.testing.verify.cases import Case


def own_case(options: argparse.Namespace) -> type[Case]:
    """Return the case of a user's application, by oracle or by input."""
    if not Path(options.app).is_file() or not (options.oracle or options.input):
        raise wrong(
            f"--app {options.app} must be an application's file, with --oracle FILE:CLASS or "
            "--input SOURCE=FILE.",
            "Name the application's file, and add --oracle or --input.",
        )
    sys.path.insert(0, str(Path(options.app).resolve().parent))
    own = _oracle(options.oracle) if options.oracle else _observed(options.input, options.key)
    return type(own.__name__, (own,), {"module": options.app})


def _oracle(named: str) -> type[Case]:
    file, _, name = named.rpartition(":")
    sys.path.insert(0, str(Path(file).resolve().parent))
    oracle = None
    if Path(file).is_file():
        oracle = getattr(importlib.import_module(Path(file).stem), name, None)
    if not (isinstance(oracle, type) and issubclass(oracle, Case)):
        raise wrong(
            f"--oracle {named}: no subclass of wallaroo.testing.verify.cases.Case has that name.",
            "Name the class that makes the input and judges the output.",
        )
    return oracle


def _observed(inputs: list[tuple[str, Path]], key: str) -> type[Case]:
    for source, file in inputs:
        if not file.is_file():
            raise wrong(f"--input {source}={file}: there is no such file.", "Name one.")
    lines = {source: file.read_bytes().splitlines() for source, file in inputs}
    for source, file in inputs:
        if not lines[source]:
            raise wrong(f"--input {source}={file}: it has no lines.", "A line is a message.")
    return type("Observed", (Observed,), {"sources": tuple(lines), "lines": lines, "key": key})
