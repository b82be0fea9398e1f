"""Fusion of a chain of closures into one function.

Each of the closures calls the next one for every event.

A head and the operators after it are plain closures; each calls its next one as ``emit(key,
event)``.  ``fused`` replaces each such call by the body of the next closure, with renamed
variables, up to the exit. Then only the user's functions are called per event: one call less per
step. The new function is generated from the source of the closures, so no code is duplicated, and
the closures still define the semantics (tests compare both).

A closure that can be inlined is written in this package and accepts two arguments, which it does
not assign; it has no ``return``, ``yield`` or inner function.  Its references are bound when its
stage is built, and are not bound again later.  Others are called as usual: methods, operators that
hold events back, measuring wrappers.

The text is compiled once per chain of code and kept; a stage that is built again costs no
compilation.  Frames of the new function belong to this module, so they do not count as the user's.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeVar

from wallaroo.user_code.user_frames import PACKAGE

# file name in stack traces, with a number; its path lies within the engine, for code that
# distinguishes files by path
FUSED = "<fused>/wallaroo/engine/"
NEXT = "emit"  # the name by which closures call the next one
# limit for a chain that becomes one function: Python bounds the nesting of loops and blocks
DEPTH_MAX = 12
_FORBIDDEN = (
    ast.Return,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Global,
    ast.Nonlocal,
)
_numbers = itertools.count()
Anything = TypeVar("Anything", bound=Callable[..., None])


def fused(head: Anything) -> Anything:
    """Return a function like ``head`` with its closures' code inlined, or the head itself."""
    chain = tuple(_chain(head))
    if len(chain) < 2:
        return head
    made = _made(tuple(each.__code__ for each in chain))
    found: Any = made.make(*(_value(chain[place], name) for place, name in made.bound))
    return found  # type: ignore[no-any-return]  # it takes what the head takes


def _chain(head: Any) -> Iterator[FunctionType]:
    """Yield the head and the closures that can be inlined into it, in event order."""
    following = head
    for depth in range(DEPTH_MAX):
        if not isinstance(following, FunctionType) or _text_of(following.__code__) is None:
            return
        text = _text_of(following.__code__)
        assert text is not None
        if depth and not text.fits:
            return
        yield following
        if not text.has_next:
            return
        following = _value(following, NEXT)


def _value(closure: FunctionType, name: str) -> Any:
    free = closure.__code__.co_freevars
    if name in free:
        return (closure.__closure__ or ())[free.index(name)].cell_contents
    return closure.__globals__[name]


@dataclass(frozen=True, slots=True)
class _Text:
    """Text of a closure.  Trees are not to be changed."""

    parameters: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    assigned: frozenset[str]
    bound: tuple[str, ...]  # names it refers to: free variables and globals, not builtins
    has_next: bool  # calls the next closure exactly once
    fits: bool  # can be inlined


@lru_cache(maxsize=256)
def _text_of(code: CodeType) -> _Text | None:
    """Return the text of a closure of this package; None if it is unavailable or unusable."""
    tree = _tree_of(code)
    if tree is None or any(isinstance(each, _FORBIDDEN) for each in _inside(tree)):
        return None
    parameters = tuple(each.arg for each in tree.args.args)
    body = tuple(tree.body[1:] if ast.get_docstring(tree, clean=False) else tree.body)
    names = [each for each in _inside(tree) if isinstance(each, ast.Name)]
    caught = {
        each.name for each in _inside(tree) if isinstance(each, ast.ExceptHandler) and each.name
    }
    stored = {each.id for each in names if not isinstance(each.ctx, ast.Load)}
    assigned = frozenset(stored | caught)
    known = {*code.co_freevars, *code.co_names}
    loaded = {each.id for each in names} - assigned - set(parameters)
    bound = tuple(sorted(name for name in loaded & known if not _is_builtin(code, name)))
    calls = [each for each in _inside(tree) if _is_next(each)]
    uses = [each for each in names if each.id == NEXT]
    has_next = NEXT in code.co_freevars and len(calls) == len(uses) == 1
    fits = len(parameters) == 2 and assigned.isdisjoint(parameters)
    return _Text(parameters, body, assigned, bound, has_next, fits)


def _tree_of(code: CodeType) -> ast.FunctionDef | None:
    module = inspect.getmodule(code)
    if module is None or module.__name__.partition(".")[0] != PACKAGE:
        return None
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # the package also works without its source
        return None
    tree = parsed.body[0]
    is_plain = (
        isinstance(tree, ast.FunctionDef)
        and tree.name == code.co_name
        and not tree.args.defaults
        and len(tree.args.args) == code.co_argcount
        and not code.co_kwonlyargcount
    )
    return tree if is_plain and isinstance(tree, ast.FunctionDef) else None


def _inside(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    for statement in tree.body:
        yield from ast.walk(statement)


def _is_builtin(code: CodeType, name: str) -> bool:
    module = inspect.getmodule(code)
    return name not in code.co_freevars and not hasattr(module, name)


def _is_next(node: ast.AST) -> bool:
    """Return whether this is the statement that calls the next one."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == NEXT
        and len(node.value.args) == 2
        and not node.value.keywords
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """A compiled chain.

    ``make`` accepts the values of ``bound``: (place in the chain, name).
    """

    make: Callable[..., Any]
    bound: tuple[tuple[int, str], ...]


@lru_cache(maxsize=256)
def _made(codes: tuple[CodeType, ...]) -> _Made:
    texts = [text for code in codes if (text := _text_of(code)) is not None]
    bound = tuple(
        (place, name)
        for place, text in enumerate(texts)
        for name in text.bound
        if not (name == NEXT and place + 1 < len(texts))
    )
    head = texts[0]
    arguments: dict[str, ast.expr] = {name: ast.Name(name, ast.Load()) for name in head.parameters}
    parts = [
        f"def make({', '.join(f'{name}_{place}' for place, name in bound)}):",
        f"    def run({', '.join(head.parameters)}):",
        textwrap.indent(_written(_Renaming(texts, 0, arguments).body()), " " * 8),
        "    return run\n",
    ]
    source = "\n".join(parts)
    name = f"{FUSED}{next(_numbers)}"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    scope: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, name, "exec"), scope)
    return _Made(scope["make"], bound)


def _written(body: list[ast.stmt]) -> str:
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))


class _Renaming(ast.NodeTransformer):
    """Renaming of variables at one place of a chain.

    Names that the closure assigns or binds get the place as a suffix; the text of the next closure
    replaces its call.
    """

    def __init__(self, texts: list[_Text], place: int, arguments: dict[str, ast.expr]):
        self._texts = texts
        self._place = place
        self._text = texts[place]
        self._arguments = arguments
        self._own = self._text.assigned | set(self._text.bound)

    def body(self) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        for statement in self._text.body:
            found = self.visit(ast.parse(ast.unparse(statement)).body[0])
            body += found if isinstance(found, list) else [found]
        return body

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._arguments:
            return self._arguments[node.id]
        name = f"{node.id}_{self._place}" if node.id in self._own else node.id
        return ast.Name(name, node.ctx)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        if node.name is not None:
            node.name = f"{node.name}_{self._place}"
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        following = self._place + 1
        if not _is_next(node) or following == len(self._texts):
            return self.generic_visit(node)
        call = node.value
        assert isinstance(call, ast.Call)
        arguments: dict[str, ast.expr] = {}
        before: list[ast.stmt] = []
        for name, value in zip(self._texts[following].parameters, call.args, strict=True):
            argument = self.visit(value)
            if not isinstance(argument, ast.Name | ast.Constant):
                own = f"{name}_{following}"
                before.append(ast.Assign([ast.Name(own, ast.Store())], argument))
                argument = ast.Name(own, ast.Load())
            arguments[name] = argument
        return before + _Renaming(self._texts, following, arguments).body()
