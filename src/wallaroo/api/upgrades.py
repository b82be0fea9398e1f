"""The decorator for functions that upgrade stored objects of a class.

Where it runs: driver and workers, when the application's modules are imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.state_versions import ATTRIBUTE, VERSION_MAX, register, version_of
from wallaroo.user_code.user_frames import user_place

S = TypeVar("S")
Function = Callable[[dict[str, Any]], S]


def upgrade(state: type[S], *, from_version: int) -> Callable[[Function[S]], Function[S]]:
    """Decorate the function that creates a state object from the fields of an older one.

    ``state`` is the current class, which declares its version as ``state_version = 2``; a class
    that declares none is version 1.  The function receives the fields of an object that was stored
    by ``from_version`` as a dict, and returns the new object.  The old class need not exist.  The
    function is called when an event uses the object, or in the background; the object is then
    stored in its new form.
    """
    cls: Any = state
    version = version_of(cls)
    what = ""
    fix = ""
    if not inspect.isclass(cls):
        what = f"{cls!r} is not a class."
        fix = "Give the current state class: @wallaroo.upgrade(Total, from_version=1)."
    elif type(version) is not int or not 1 < version <= VERSION_MAX:
        what = f"{state.__name__} is version {version!r}: there is none before it."
        fix = f"Declare the current version in the class: {ATTRIBUTE} = 2."
    elif type(from_version) is not int or not 1 <= from_version < version:
        what = f"from_version={from_version!r} is not before version {version}."
        fix = f"Give the version of the stored objects, 1 to {version - 1}."
    if what:
        raise WallarooParameterError(Problem("@upgrade", user_place(), what, fix))

    def decorate(function: Function[S]) -> Function[S]:
        register(state, from_version, function)
        return function

    return decorate
