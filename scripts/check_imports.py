"""Prove that imports go one way: no cycles of modules or of packages, pure packages stay pure,
pyspark has one home, which holds what needs it, nothing hides inside functions, and
ARCHITECTURE.md shows what is.

    check_imports.py            print what is wrong
    check_imports.py --write    write the package graph of ARCHITECTURE.md

An ``importlib.import_module("...")`` counts as an import; so does one under ``TYPE_CHECKING``.  A
package here is a folder, and one inside another is a package of its own: a folder imports those
below it or is imported by them, never both.

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
MODULES_MAX = 14  # in a folder; above, it has more than one subject
TOP_MODULES_MAX = 8
TOP_PACKAGES_MAX = 26
ARROWS_MAX = 199  # between the packages of the top level
LAZY_MAX = 30
# between these lines of ARCHITECTURE.md the graph is written
GRAPH_BEGINS, GRAPH_ENDS = "<!-- package graph -->", "<!-- end of package graph -->"

# Packages that re-export names of others.  Their imports are not arrows; in return nothing of this
# package imports them.
FACES = frozenset(
    f"{PACKAGE}{name}" for name in ("", ".sources", ".sinks", ".experimental", ".testing")
)
# What a pure package may know of this package.  Everything it imports must be listed here, or lie
# outside of this package.
_BELOW = ("errors", "protocols", "steps", "user_code", "vectorized")
KNOWS = {
    "protocols": ("errors", "protocols"),
    "steps": ("errors", "user_code", "steps"),
    "vectorized": _BELOW,
    "dataflow.graph": (*_BELOW, "dataflow.graph"),
    "dataflow.check": (*_BELOW, "sources", "sinks", "dataflow.graph", "dataflow.check"),
    "dataflow.plan": (*_BELOW, "dataflow.graph", "dataflow.plan"),
    "engine": (*_BELOW, "dataflow.plan", "engine"),
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
HOMES = {
    "pyspark": ("wallaroo.spark",),
    "py4j": ("wallaroo.spark", "wallaroo.connectors.lake.delta.kernel"),  # a JVM without Spark
}
# Modules of these homes that get along without the library: what of Spark's own they are about.
# The rest of a home imports its library, or a module of the home that does.
WITHOUT = {
    "wallaroo.spark.cluster.joining_hosts": "runs in the Python workers of Spark's executors",
    "wallaroo.spark.jvm": "Spark's JVM, which begins before PySpark is imported",
    "wallaroo.spark.local_cluster": "a standalone cluster of Spark, started as processes",
}
# Imports inside functions: (module, what it imports): why.
LAZY = {
    (
        "wallaroo.checkpoints.inspection.keyed",
        "wallaroo.engine.columnar.joins.timed_rows",
    ): "wallaroo state loads Arrow only if rows wait as columns",
    (
        "wallaroo.api.application",
        "wallaroo.api.building",
    ): "import wallaroo stays fast: only who builds needs checks and planner",
    (
        "wallaroo.spark.session.worker_daemon",
        "pyspark.daemon",
    ): "the path is put right before PySpark is imported",
    ("wallaroo.api.application", "wallaroo.dataflow.graph"): "only notebooks draw",
    ("wallaroo.api.pipeline", "wallaroo.dataflow.graph.svg"): "only notebooks draw",
    (
        "wallaroo.sources.interface",
        "wallaroo.sources.spooled",
    ): "import wallaroo stays fast: only a run opens the log of a source",
    (
        "wallaroo.engine.levels.stages",
        "wallaroo.engine.columnar",
    ): "only vectorized steps need numpy",
    ("wallaroo.engine.columnar.forms", "polars"): "only steps that ask for its frames need it",
    ("wallaroo.dataflow.check.batches", "numpy"): "only states of a numpy dtype need it",
    ("wallaroo.api.batch", "wallaroo.vectorized.arrow_ipc"): "only Arrow's rows need pyarrow",
    ("wallaroo.api.batch", "wallaroo.vectorized.json_lines"): "the same",
    ("wallaroo.state.store.objects", "obstore"): "it is optional: only checkpoints there need it",
    (
        "wallaroo.cli.send.command",
        "wallaroo.cli.send.kafka",
    ): "it needs confluent-kafka, which is optional",
    (
        "wallaroo.cli.receive.command",
        "wallaroo.cli.receive.kafka",
    ): "it needs confluent-kafka, which is optional",
    (
        "wallaroo.connectors.spark.rows",
        "pyarrow",
    ): "it takes long, and only Spark's rows need it",
    ("wallaroo.connectors.files.rows", "pyarrow"): "it takes long, and only rows need it",
    ("wallaroo.serdes.avro", "fastavro"): "it is optional",
    ("wallaroo.serdes.registry", "confluent_kafka.schema_registry"): "it is optional",
    ("wallaroo.runner", "wallaroo.spark.jvm.preflight"): "only a run looks for Java and Pythons",
    (
        "wallaroo.cli.doctor.command",
        "wallaroo.cli.doctor.faster_start",
    ): "doctor looks at machines that cannot import Spark",
    (
        "wallaroo.runner",
        "wallaroo.spark.micro_batch.host",
    ): "import wallaroo stays fast and needs no Spark",
    ("wallaroo.runner", "wallaroo.spark.jvm.jvm_process"): "only a run starts a JVM",
    (
        "wallaroo.user_code.references",
        "cloudpickle",
    ): "only functions that cannot be imported by name need it",
    (
        "wallaroo.cli.run.views",
        "wallaroo.cli.run.live_view",
    ): "a run starts fast: only terminals need rich",
    (
        "wallaroo.monitoring.status_api.routes",
        "wallaroo.monitoring.status_api.prometheus",
    ): "a run starts fast: only who scrapes it needs Prometheus",
    (
        "wallaroo.cli.main",
        "importlib",
    ): "commands start fast: only --version and reports of mistakes need it",
    (
        "wallaroo.ingress.server",
        "wallaroo.ingress.connector_listener",
    ): "an ingress starts fast: only sources of the connector protocol need it",
    (
        "wallaroo.spool.writer",
        "wallaroo.spool.copying",
    ): "an ingress starts fast: only a run with a replica needs it",
    ("wallaroo.testing.step", "wallaroo.testing.block_step"): "only vectorized steps need numpy",
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
        elif isinstance(node, ast.Call) and (target := _imported_by_call(node)):
            yield Import(importer, target, node.lineno, id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            base = _base(importer, node, is_package)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(
                    importer, inner if inner in modules else base, node.lineno, id(node) in lazy
                )


def _imported_by_call(node: ast.Call) -> str:
    """What ``importlib.import_module`` or ``__import__`` is called with, if it is a constant."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in ("import_module", "__import__") or not node.args:
        return ""
    argument = node.args[0]
    is_name = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    return str(argument.value) if is_name and isinstance(argument, ast.Constant) else ""


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
            yield f"{library} belongs in {', '.join(homes)}"
    if (
        is_under(item.target, "wallaroo.cli")
        and not is_under(item.importer, "wallaroo.cli")
        and item.importer != "wallaroo.__main__"
    ):
        yield "the command line is imported by no module"
    if item.target in FACES - {PACKAGE} and item.importer not in FACES:
        yield f"{item.target} is a face: import from the module that has the name"
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


def package_of(module: str, paths: dict[str, Path]) -> str:
    """The folder that a module lies in, dotted; a module of the top level is a package by
    itself.
    """
    if paths[module].name == "__init__.py":
        return module
    parent = module.rpartition(".")[0]
    return module if parent == PACKAGE else parent


def package_edges(edges: dict[str, set[str]], paths: dict[str, Path]) -> dict[str, set[str]]:
    """The same imports, package by package, without those of faces."""
    packages: dict[str, set[str]] = {package_of(module, paths): set() for module in edges}
    for module, targets in edges.items():
        if module not in FACES:
            package = package_of(module, paths)
            others = {package_of(target, paths) for target in targets} - {package, PACKAGE}
            packages[package].update(others)
    return packages


def top_edges(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same imports, between entries of the top level."""
    tops: dict[str, set[str]] = {}
    for package, targets in edges.items():
        top = _top(package)
        tops.setdefault(top, set()).update(t for t in map(_top, targets) if t != top)
    return {top: targets for top, targets in tops.items() if top != PACKAGE}


def graph_lines(edges: dict[str, set[str]]) -> list[str]:
    """The graph of the top level, lowest first: a line per package, and what it imports."""
    tops = top_edges(edges)
    lines: list[str] = []
    done: set[str] = {PACKAGE}
    while tops:
        ready = sorted(top for top, targets in tops.items() if targets <= done)
        if not ready:
            return [*lines, "(the rest are cycles)"]
        for top in ready:
            below = sorted(tops.pop(top) - {PACKAGE})
            lines.append(f"{top:<18}{' '.join(below)}".rstrip())
        done.update(ready)
    return lines


def _top(package: str) -> str:
    parts = package.split(".")
    return parts[1] if len(parts) > 1 else package


def crowded(paths: dict[str, Path], edges: dict[str, set[str]], lazy: int) -> Iterator[str]:
    """Folders that hold too many modules, and a top level that has too many entries or arrows."""
    folders: dict[Path, int] = {}
    for path in paths.values():
        if path.name != "__init__.py":
            folders[path.parent] = folders.get(path.parent, 0) + 1
    yield from (
        f"{folder.name}: {count} modules; at most {MODULES_MAX}"
        for folder, count in sorted(folders.items())
        if count > MODULES_MAX and folder.name != PACKAGE
    )
    tops = top_edges(edges)
    files = {f"{path.parent.name}.{path.stem}" for path in paths.values()}
    modules = sum(f"{PACKAGE}.{top}" in files for top in tops) + 1
    packages = len(tops) - modules + 1
    arrows = sum(map(len, tops.values()))
    for count, most, noun in (
        (packages, TOP_PACKAGES_MAX, "packages at the top"),
        (modules, TOP_MODULES_MAX, "modules at the top"),
        (arrows, ARROWS_MAX, "arrows between packages"),
        (lazy, LAZY_MAX, "imports inside functions"),
    ):
        if count > most:
            yield f"{count} {noun}; at most {most}"


def without_library(tree: Tree) -> Iterator[str]:
    """Modules that lie in a library's home and get along without it."""
    homes = sorted({home for homes in HOMES.values() for home in homes})
    for home in homes:
        inside = {name for name in tree.paths if is_under(name, home)}
        need = inside & tree.at_home
        while more := {name for name in inside - need if tree.edges[name] & need}:
            need |= more
        for name in sorted(inside - need):
            is_listed = any(is_under(name, listed) for listed in WITHOUT)
            if tree.paths[name].name != "__init__.py" and not is_listed:
                yield f"{name} needs nothing that {home} is the home of; move it"


@dataclass(frozen=True, slots=True)
class Tree:
    """All modules, what each imports, and what is wrong with single imports."""

    paths: dict[str, Path]
    edges: dict[str, set[str]]
    wrong: tuple[str, ...]
    at_home: frozenset[str]  # modules that import a library whose home they lie in
    lazy: frozenset[tuple[str, int]]  # module and line of each import inside a function


def read_tree(root: Path) -> Tree:
    """Read everything under ``root``."""
    paths = {module_name(path, root): path for path in sorted(root.rglob("*.py"))}
    edges: dict[str, set[str]] = {name: set() for name in paths}
    wrong: list[str] = []
    at_home: set[str] = set()
    lazy: set[tuple[str, int]] = set()
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for item in imports_of(name, tree, frozenset(paths), path.name == "__init__.py"):
            wrong += [
                f"{path.relative_to(root.parent)}:{item.line}: {text}" for text in complaints(item)
            ]
            if item.is_lazy:
                lazy.add((name, item.line))
            if item.target in paths:
                edges[name].add(item.target)
            if any(is_under(item.target, library) for library in HOMES):
                at_home.add(name)
    return Tree(paths, edges, tuple(wrong), frozenset(at_home), frozenset(lazy))


def check(root: Path) -> list[str]:
    """Everything wrong under ``root``, a line each; empty where all is well."""
    tree = read_tree(root)
    packages = package_edges(tree.edges, tree.paths)
    return [
        *tree.wrong,
        *(f"modules import each other: {', '.join(group)}" for group in cycles(tree.edges)),
        *(
            f"packages import each other: {', '.join(group)}"
            for group in cycles(packages)
            if any(tree.paths[name].name == "__init__.py" for name in group)
        ),
        *crowded(tree.paths, packages, len(tree.lazy)),
        *without_library(tree),
        *_page_differs(root, graph_lines(packages)),
    ]


def _page_differs(root: Path, lines: list[str]) -> Iterator[str]:
    page = root.parent / "ARCHITECTURE.md"
    if page.exists() and page.read_text(encoding="utf-8") != _with_graph(page, lines):
        yield "ARCHITECTURE.md: its package graph is not the code's; run check_imports.py --write"


def _with_graph(page: Path, lines: list[str]) -> str:
    before, _, rest = page.read_text(encoding="utf-8").partition(GRAPH_BEGINS)
    after = rest.partition(GRAPH_ENDS)[2]
    block = "\n".join(["```", *lines, "```"])
    return f"{before}{GRAPH_BEGINS}\n{block}\n{GRAPH_ENDS}{after}"


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    if "--write" in sys.argv[1:]:
        tree = read_tree(ROOT)
        page = ROOT.parent / "ARCHITECTURE.md"
        lines = graph_lines(package_edges(tree.edges, tree.paths))
        page.write_text(_with_graph(page, lines), encoding="utf-8")
    wrong = check(ROOT)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
