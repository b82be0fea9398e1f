"""Names that Wallaroo has and this version has not: calling one says so in one sentence.

Where it runs: driver, while an application is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from wallaroo.errors import NotYetError, Problem
from wallaroo.user_frames import user_place

OLD_DECORATOR = (
    "the decorator of 2018 comes in a later version; until then use key_extractor and key_by()."
)


def not_yet(name: str, why: str) -> Callable[..., NoReturn]:
    """Make the function ``name``, which raises NotYetError when it is called."""

    def missing(*_: Any, **__: Any) -> NoReturn:
        raise NotYetError(Problem(f"wallaroo.{name}", user_place(), "is not here yet:", why))

    missing.__name__ = missing.__qualname__ = name.rpartition(".")[2]
    missing.__doc__ = f"Not yet: {why}"
    return missing


partition = not_yet("partition", OLD_DECORATOR)
