"""How many lines of code a query of Nexmark takes.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

from benchmarks.nexmark import queries

SHARED = frozenset({"timed", "Events", "Rows", "QUERIES"})
BLANK = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def lines_of(query: str, text: str | None = None) -> int:
    """Count the lines of a query's function and of all that it uses in its module.

    Docstrings, comments, empty lines and what all queries share do not count.

    >>> lines_of("q", '''
    ... def q(events):
    ...     "Pass through."
    ...     return events.map(row)
    ...
    ... def row(event):  # a pair
    ...     return event, event
    ... ''')
    4
    """
    text = text or Path(queries.__file__).read_text()
    module = ast.parse(text)
    definitions = _definitions(module)
    wanted = [query]
    for name in wanted:
        used = {
            each.id
            for node in definitions[name]
            for each in ast.walk(node)
            if isinstance(each, ast.Name)
        }
        wanted += sorted((used & definitions.keys()) - SHARED - set(wanted))
    code = _code(text) - _docstrings(module)
    return len({line for name in wanted for node in definitions[name] for line in code & _of(node)})


def _definitions(module: ast.Module) -> dict[str, list[ast.stmt]]:
    """Return the statements that define each name; a step's handlers (`@step.on_timer`) are its."""
    found: dict[str, list[ast.stmt]] = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            handles = [
                each.value.id
                for each in node.decorator_list
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
            ]
            for name in (node.name, *handles):
                found.setdefault(name, []).append(node)
        elif isinstance(node, ast.Assign):
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    found.setdefault(each.id, []).append(node)
    return found


def _code(text: str) -> set[int]:
    """Return the lines that hold more than a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        line
        for token in tokens
        if token.type not in BLANK
        for line in range(token.start[0], token.end[0] + 1)
    }


def _docstrings(module: ast.Module) -> set[int]:
    return {
        line
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node)
        for line in _of(node.body[0])
    }


def _of(node: ast.stmt) -> set[int]:
    decorators = getattr(node, "decorator_list", ())
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return set(range(first, (node.end_lineno or first) + 1))
