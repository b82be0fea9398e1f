"""Facts about users' functions from source: return types and event attributes.

Where it runs: driver; pure.

Invariant: a fact that depends on a value, a branch or a library is unknown, never guessed.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

_DISPLAYS = {
    ast.JoinedStr: str,
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.List: list,
    ast.ListComp: list,
    ast.Tuple: tuple,
    ast.Set: set,
    ast.SetComp: set,
}
_OTHER_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LATER = (*_OTHER_SCOPES, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STRAIGHT = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)


def class_returned(function: Callable[..., Any]) -> type[Any] | None:
    """Return the class of every object but None that a function returns; None if unknown.

    It may also return None, which filters the event.
    """
    tree = _tree_of(function)
    if tree is None or any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(tree)):
        return None
    returns = [each.value for each in _of_its_own(tree) if isinstance(each, ast.Return)]
    classes = {_class_of(value, function) for value in returns if not _is_none(value)}
    return classes.pop() if len(classes) == 1 else None


def uses_of_event(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield what a function needs of its first argument on every call.

    Each use is its text and the attribute behind it: ``("order['id']", "__getitem__")``, or
    ``("order.id", "id")``.
    """
    tree = _tree_of(function)
    if tree is None or not tree.args.args:
        return
    name = tree.args.args[0].arg
    for statement in tree.body:
        if not isinstance(statement, _STRAIGHT):
            return
        nodes = [*_at_once(statement)]
        if any(
            isinstance(each, ast.Name) and each.id == name and _is_stored(each) for each in nodes
        ):
            return
        for node in nodes:
            if not isinstance(node, ast.Subscript | ast.Attribute) or _is_stored(node):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == name:
                attribute = node.attr if isinstance(node, ast.Attribute) else "__getitem__"
                yield ast.unparse(node), attribute


def lacks(cls: type[Any], attribute: str) -> bool:
    """Return whether no object of exactly this class can have an attribute.

    >>> lacks(dict, "id"), lacks(int, "__getitem__"), lacks(Exception, "id")
    (True, True, False)
    """
    if hasattr(cls, attribute):
        return False
    if attribute == "__getitem__":
        return True  # Python looks it up on the class only
    is_plain = isinstance(cls.__getattribute__, types.WrapperDescriptorType)
    return is_plain and not hasattr(cls, "__getattr__") and cls.__dictoffset__ == 0


def _tree_of(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """Return the text of a plain ``def``, parsed; None for anything else."""
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return None
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError, TypeError):
        return None
    is_it = isinstance(tree, ast.FunctionDef) and tree.name == function.__code__.co_name
    return tree if is_it else None  # type: ignore[return-value]  # the comparison is in is_it


def _of_its_own(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the content of a function, without functions and classes in it."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, _OTHER_SCOPES):
            yield node
            yield from _of_its_own(node)


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """Yield, in no particular order, everything that a statement always evaluates."""
    yield node
    if isinstance(node, _LATER):
        return
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.IfExp):
        children = [node.test]
    elif isinstance(node, ast.BoolOp):
        children = [node.values[0]]
    elif isinstance(node, ast.Compare):
        children = [node.left, node.comparators[0]]
    for child in children:
        yield from _at_once(child)


def _class_of(value: ast.expr | None, function: Any) -> type[Any] | None:
    if isinstance(value, ast.Constant):
        return type(value.value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        name = value.func.id
        code = function.__code__
        if name in code.co_varnames or name in code.co_freevars or name in code.co_cellvars:
            return None
        called = function.__globals__.get(name, getattr(builtins, name, None))
        return called if _creates_its_own(called) else None
    return _DISPLAYS.get(type(value))


def _creates_its_own(called: Any) -> bool:
    """Return whether a call of this class returns an object of exactly this class."""
    if not isinstance(called, type) or type(called).__call__ is not type.__call__:
        return False
    is_named_tuple = issubclass(called, tuple) and hasattr(called, "_fields")
    is_built_in = called.__module__ == "builtins" and called is not type
    return (
        is_named_tuple
        or is_built_in
        or not any("__new__" in vars(each) for each in called.__mro__[:-1])
    )


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _is_stored(node: ast.Name | ast.Subscript | ast.Attribute) -> bool:
    return not isinstance(node.ctx, ast.Load)
