"""Prove that imports go one way: no cycles, pure packages stay pure, pyspark has one home, nothing
hides inside functions.

Where it runs: a check.  Reads src/wallaroo as text; imports nothing of it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "wallaroo"

# What a pure package may know of this package.  Everything it imports must be listed here, or lie
# outside of this package.
_BELOW = ("errors", "steps", "framing", "context", "user_frames")
_CONFIGS = ("sources", "sinks")
KNOWS = {
    "framing": ("errors",),
    "graph": (*_BELOW, "graph"),
    "check": (*_BELOW, *_CONFIGS, "graph", "check"),
    "plan": (*_BELOW, *_CONFIGS, "graph", "check", "plan"),
    "engine": (*_BELOW, *_CONFIGS, "graph", "plan", "engine"),
}
# No clock, no threads, no outside world.
IMPURE = frozenset(
    [
        "asyncio",
        "concurrent",
        "ctypes",
        "fcntl",
        "http",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "queue",
        "random",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
    ]
)
# Homes of libraries: only modules under these may import them.
HOMES = {"pyspark": ("wallaroo.spark",), "py4j": ("wallaroo.spark",)}
# Imports inside functions: (module, what it imports): why.
LAZY = {
    ("wallaroo.steps", "cloudpickle"): "only functions that cannot be imported by name need it",
    ("wallaroo.check.unpicklable", "cloudpickle"): "only to name what cannot be pickled",
    (
        "wallaroo.sinks.postgres.config",
        "wallaroo.sinks.postgres.committer",
    ): "it needs psycopg, which is optional",
    (
        "wallaroo.sinks.kafka.config",
        "wallaroo.sinks.kafka.committer",
    ): "it needs confluent-kafka, which is optional",
    (
        "wallaroo.sources.kafka.config",
        "wallaroo.sources.kafka.log",
    ): "it needs confluent-kafka, which is optional",
    ("wallaroo.runner", "wallaroo.spark.driver"): "import wallaroo stays fast and needs no Spark",
}


@dataclass(frozen=True, slots=True)
class Import:
    """One import: who, what, on which line, and whether it hides inside a function."""

    importer: str
    target: str
    line: int
    is_lazy: bool


def module_name(path: Path, root: Path) -> str:
    """The dotted name of a file under ``root``."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(
    importer: str, tree: ast.Module, modules: frozenset[str], is_package: bool
) -> Iterator[Import]:
    """Every import of a module, with ``from package import module`` read as an import of the
    module.
    """
    lazy = {
        id(node)
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(f)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, node.lineno, id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            base = _base(importer, node, is_package)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(
                    importer, inner if inner in modules else base, node.lineno, id(node) in lazy
                )


def _base(importer: str, node: ast.ImportFrom, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = importer.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def is_under(name: str, package: str) -> bool:
    """Whether ``name`` is ``package`` or lies inside it."""
    return name == package or name.startswith(package + ".")


def complaints(item: Import) -> Iterator[str]:
    """What is wrong with one import by itself."""
    layer = next((pure for pure in KNOWS if is_under(item.importer, f"{PACKAGE}.{pure}")), None)
    if layer and item.target.split(".")[0] in IMPURE:
        yield f"{layer} is pure: no {item.target}"
    if (
        layer
        and is_under(item.target, PACKAGE)
        and not any(is_under(item.target, f"{PACKAGE}.{k}") for k in KNOWS[layer])
    ):
        yield f"{layer} must not know {item.target}"
    for library, homes in HOMES.items():
        if is_under(item.target, library) and not any(
            is_under(item.importer, home) for home in homes
        ):
            yield f"{library} belongs into {', '.join(homes)}"
    if (
        is_under(item.target, "wallaroo.cli")
        and not is_under(item.importer, "wallaroo.cli")
        and item.importer != "wallaroo.__main__"
    ):
        yield "nobody imports the command line"
    if item.is_lazy and not any(
        item.importer == who and is_under(item.target, what) for who, what in LAZY
    ):
        yield (
            f"import of {item.target} inside a function; move it to the top, or list it with "
            f"its reason in LAZY"
        )


def cycles(edges: dict[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """Groups of modules that import each other, each group once (Tarjan's strongly connected
    components).
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1 or node in edges.get(node, ()):
                found.append(tuple(sorted(group)))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    yield from found


def check(root: Path) -> list[str]:
    """Everything wrong under ``root``, a line each; empty where all is well."""
    paths = {module_name(path, root): path for path in sorted(root.rglob("*.py"))}
    edges: dict[str, set[str]] = {name: set() for name in paths}
    wrong = []
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for item in imports_of(name, tree, frozenset(paths), path.name == "__init__.py"):
            wrong += [
                f"{path.relative_to(root.parent)}:{item.line}: {text}" for text in complaints(item)
            ]
            if item.target in paths:
                edges[name].add(item.target)
    return wrong + [f"modules import each other: {', '.join(group)}" for group in cycles(edges)]


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    wrong = check(ROOT)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
