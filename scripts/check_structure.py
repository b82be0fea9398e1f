"""See that classes stay small and whole, that statements assign one thing, and that tests lie where
what they test lies.

* A class has at most ATTRIBUTES_MAX attributes; plain records (dataclasses of public fields) are
  tables, not objects, and may have more.
* Attributes are created in ``__init__``, or declared in the class.
* A constructor takes at most ARGUMENTS_MAX arguments, a call at most POSITIONAL_MAX positional
  ones.
* A function has at most LINES_MAX lines, those of functions inside it included.
* No statement assigns several values to several targets (``a, b = 1, 2``), or a constant to several
  (``a = b = 0``); taking a result apart is fine.
* Every path that ARCHITECTURE.md names is there.
* Numbers of formats and protocols of our own are big endian.
* No test replaces a constant of a module: what a test makes small is a parameter.
* No docstring of the package begins with a question word: a function's begins with an imperative, a
  module's or class's is a noun phrase.  No comment begins with "of".
* A local that is named by a participle (`VAGUE`) is used within `VAGUE_LINES` lines only; one that
  lives longer is named by what it holds.
* Every module says where it runs, unless its package says it for all of its modules.
* Every folder of ``tests/unit`` has its namesake in the package, or is listed with its reason.

Where it runs: a check.  Reads files as text; imports nothing of the package.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "wallaroo"
ATTRIBUTES_MAX = 12
ARGUMENTS_MAX = 10
POSITIONAL_MAX = 8
LINES_MAX = 60
NAMED = re.compile(r"`(\w[\w/.]*/[\w/.]*)(?:`| )")  # a path on a page
CONSTANT = re.compile(r"([\w.]+\.)?[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|([\w.]+\.)?[A-Z]{3,}")
QUESTION = re.compile(r"(What|How|Where|Which|Who|When|Why|That|Of)\b")
VAGUE = frozenset(["found", "made", "given", "taken", "known", "own"])
VAGUE_LINES = 5
WHERE = "Where it runs:"
OF_COMMENT = re.compile(r"(^|\s)# +of \w")
# Classes that may have more attributes: why.
LARGE = {
    "compat.programs.client.AtLeastOnceSourceConnector": "Wallaroo's API: programs use them",
}
# Modules that read and write a format of others, whose least byte comes first: which.
LITTLE = {"engine.stores.last_use": "pickles", "engine.stores.evolution": "pickles"}
# Folders of tests/unit without a namesake in the package: why.
TESTS_ONLY = {
    "benchmarks": "of benchmarks/",
    "deploy": "of deploy/",
    "examples": "of examples/",
    "scripts": "of scripts/",
    "failures": "a feature through all layers: errors of user code",
}


def complaints(name: str, tree: ast.Module) -> Iterator[str]:
    """What is wrong with a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from _of_class(name, node)
        elif isinstance(node, ast.FunctionDef) and _lines(node) > LINES_MAX:
            yield f"{name}:{node.lineno}: {node.name} has {_lines(node)} lines, at most {LINES_MAX}"
        elif isinstance(node, ast.Call) and name not in LITTLE and _is_little(node):
            yield f"{name}:{node.lineno}: {ast.unparse(node)} is little endian"
        elif isinstance(node, ast.Call) and _positional(node) > POSITIONAL_MAX:
            what = f"{_positional(node)} positional arguments for {ast.unparse(node.func)}"
            yield f"{name}:{node.lineno}: {what}; name them"
        elif isinstance(node, ast.Assign) and _is_several(node):
            yield f"{name}:{node.lineno}: several assignments in one statement"


def wordings(name: str, content: str) -> Iterator[str]:
    """A complaint for each docstring and comment of the wrong form."""
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            found = QUESTION.match(ast.get_docstring(node) or "")
            if found:
                line = getattr(node, "lineno", 1)
                yield f"{name}:{line}: a docstring begins with {found[1]!r}"
    for number, text in enumerate(content.splitlines(), 1):
        if OF_COMMENT.search(text):
            yield f"{name}:{number}: a comment begins with 'of'"


def vague(name: str, tree: ast.Module) -> Iterator[str]:
    """A complaint for each local that is named by a participle and lives for long."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines: dict[str, list[int]] = {}
        stored: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in VAGUE:
                lines.setdefault(node.id, []).append(node.lineno)
                stored |= {node.id} if isinstance(node.ctx, ast.Store) else set()
        for local in sorted(stored):
            if max(lines[local]) - min(lines[local]) >= VAGUE_LINES:
                yield f"{name}:{min(lines[local])}: name the local {local!r} by what it holds"


def placeless(package: Path) -> Iterator[str]:
    """A complaint for each module that says nowhere, nor do its packages, where it runs."""
    for path in sorted(package.rglob("*.py")):
        faces = [above / "__init__.py" for above in path.parents if package in above.parents]
        files = [path, *(face for face in faces if face.exists())]
        texts = [each.read_text(encoding="utf-8") for each in files]
        if path.name != "__init__.py" and not any(WHERE in text for text in texts):
            yield f"{path.relative_to(package)}: say where it runs, here or in its package"


def _lines(node: ast.FunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_little(node: ast.Call) -> bool:
    """Whether it makes or reads numbers whose least byte comes first."""
    called = ast.unparse(node.func).rpartition(".")[2]
    given = [each.value for each in node.args if isinstance(each, ast.Constant)]
    if called == "Struct":
        return any(str(each).startswith("<") for each in given)
    return called in ("to_bytes", "from_bytes") and "little" in given


def _positional(node: ast.Call) -> int:
    return sum(not isinstance(each, ast.Starred) for each in node.args)


def _is_several(node: ast.Assign) -> bool:
    """Whether it could be written as one statement after the other, as it is not an exchange."""
    if len(node.targets) > 1:  # what is stored and used at once is one value
        return isinstance(node.value, ast.Constant)
    target, value = node.targets[0], node.value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return False
    if len(target.elts) != len(value.elts):
        return False
    given = [ast.unparse(each) for each in target.elts]
    return not any(
        given[at] in {ast.unparse(part) for part in ast.walk(later)}
        for at in range(len(given))
        for later in value.elts[at + 1 :]
    )


def _of_class(name: str, node: ast.ClassDef) -> Iterator[str]:
    declared = _declared(node)
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    created: set[str] = set()
    later: set[str] = set()
    for method in methods:
        found = _stored(method)
        if method.name == "__init__":
            created |= found
            taken = len(method.args.args) - 1 + len(method.args.kwonlyargs)
            if taken > ARGUMENTS_MAX:
                yield f"{name}:{method.lineno}: {node.name}() takes {taken} arguments"
        elif not _is_setter(method):
            later |= found
    dotted = f"{name}.{node.name}".removeprefix("src.wallaroo.")
    attributes = created | {each for each in declared if not _is_record(node)}
    count = sum(not each.startswith("__") for each in attributes)  # those are Python's
    if count > ATTRIBUTES_MAX and dotted not in LARGE:
        yield (
            f"{name}:{node.lineno}: {node.name} has {count} attributes, at most {ATTRIBUTES_MAX}; "
            f"find a second object in it"
        )
    if not node.bases:  # those of a base are created there
        for each in sorted(later - created - declared):
            yield f"{name}:{node.lineno}: {node.name}.{each} is created outside of __init__"


def _is_setter(method: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Attribute) for each in method.decorator_list)


def _is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a table of public fields: a dataclass, or typed keyword arguments."""
    is_dataclass = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    is_typed = any("TypedDict" in ast.unparse(base) for base in node.bases)
    return is_typed or (is_dataclass and not any(each[0] == "_" for each in _declared(node)))


def _declared(node: ast.ClassDef) -> set[str]:
    return {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and "ClassVar" not in ast.unparse(each.annotation)
    }


def _stored(method: ast.FunctionDef) -> set[str]:
    """The attributes of the object that a method assigns."""
    if not method.args.args:
        return set()
    own = method.args.args[0].arg
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == own
    }


def replaced_constants(name: str, tree: ast.Module) -> Iterator[str]:
    """Where a test gives a module's constant another value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            for argument in node.args[:2]:
                text = argument.value if isinstance(argument, ast.Constant) else ""
                if isinstance(text, str) and CONSTANT.fullmatch(text):
                    constant = text.rpartition(".")[2]
                    yield f"{name}:{node.lineno}: replaces {constant}; make it a parameter"


def misplaced(tests: Path, package: Path) -> Iterator[str]:
    """Folders of tests that are named after nothing in the package."""
    for folder in sorted(path for path in tests.rglob("*") if path.is_dir()):
        part = folder.relative_to(tests)
        if part.parts[0] in TESTS_ONLY or "__pycache__" in part.parts:
            continue
        if not (package / part).is_dir() and not (package / part).with_suffix(".py").exists():
            yield f"tests/unit/{part}: nothing in the package is called so"


def missing(root: Path, page: str) -> Iterator[str]:
    """Paths that a page names, and that are neither in the package nor in the checkout."""
    for found in sorted(set(NAMED.findall(page))):
        path = found.rstrip("/")
        places = (root / "src" / "wallaroo", root)
        if not any((p / path).exists() or any(p.glob(f"{path}-*")) for p in places):
            yield f"ARCHITECTURE.md: there is no {found}"


def check(root: Path) -> list[str]:
    """Everything wrong below a checkout's root, a line each."""
    package = root / "src" / "wallaroo"
    wrong: list[str] = []
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(package).with_suffix("").parts)
        content = path.read_text(encoding="utf-8")
        tree = ast.parse(content, str(path))
        wrong += complaints(name, tree)
        wrong += vague(name, tree)
        wrong += wordings(name, content)
    wrong += placeless(package)
    for path in sorted((root / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        wrong += replaced_constants(str(path.relative_to(root)), tree)
    page = root / "ARCHITECTURE.md"
    if page.exists():
        wrong += missing(root, page.read_text(encoding="utf-8"))
    return [*wrong, *misplaced(root / "tests" / "unit", package)]


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    wrong = check(ROOT)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
