"""SQL over a checkpoint's tables, by DuckDB.

Only tables that the query names are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.inspection.step_forms import Loads
from wallaroo.checkpoints.tables.catalog import ROWS, table_of
from wallaroo.checkpoints.tables.state import batches, table
from wallaroo.errors import CheckpointError, PeerError

SCHEMA = "state"
WAY_OUT = "Tables: state.STEP (in double quotes if it has blanks), commits, sinks, dead_letters."


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, block by block, as Python values."""

    columns: tuple[str, ...]
    blocks: Iterator[list[tuple[Any, ...]]]


def ask(root: Path, query: str, commit: int | None, loads: Loads) -> Answer:
    """Run a query over the state after a commit; without one, after the newest."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    try:
        names = database.get_table_names(query, qualified=True)
        for number, (name, content) in enumerate(_tables(root, names, commit, loads)):
            database.register(f"wallaroo_{number}", content)
            if name.startswith(f'"{SCHEMA}".'):
                database.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            database.execute(f"CREATE VIEW {name} AS SELECT * FROM wallaroo_{number}")
        result = database.execute(query)
        columns = tuple(each[0] for each in result.description or ())
    except duckdb.Error as error:
        raise PeerError(f"DuckDB cannot answer this: {_words(error)}. {WAY_OUT}") from error
    return Answer(columns, _blocks(result))


def _blocks(result: Any) -> Iterator[list[tuple[Any, ...]]]:
    try:
        while rows := result.fetchmany(4096):
            yield rows
    except duckdb.Error as error:
        raise PeerError(f"DuckDB cannot answer this: {_words(error)}.") from error


def _tables(
    root: Path, names: Iterable[str], commit: int | None, loads: Loads
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of the checkpoint among the named ones, by their names in SQL."""
    state = CheckpointReader(root).at(commit)  # one commit for all
    for name in sorted(names):
        schema, step = _split(name)
        if schema == SCHEMA:
            state.check_step(step)
            yield f"{_quoted(schema)}.{_quoted(step)}", table(batches(state, step, loads))
        elif not schema and step in ROWS:
            yield _quoted(step), table_of(root, step)
        elif not schema and step in state.steps:
            raise CheckpointError(f"step '{step}' is the table {SCHEMA}.{_quoted(step)}.")


def _split(name: str) -> tuple[str, str]:
    """Return the schema and the name of a table, as SQL writes it.

    >>> _split('state."count word"'), _split("commits")
    (('state', 'count word'), ('', 'commits'))
    """
    schema, separator, step = name.partition(".")
    plain = step if separator else schema
    if plain.startswith('"') and plain.endswith('"'):
        plain = plain[1:-1].replace('""', '"')
    return (schema.strip('"') if separator else "", plain)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _words(error: Exception) -> str:
    return " ".join(str(error).split("LINE ")[0].split()).rstrip(".")
