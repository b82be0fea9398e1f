"""Classes of an interactive session or notebook, for transfer to workers.

Where it runs: driver packs, workers unpack.

Functions of a session are sent by value, each with its step.  Its classes are looked up by name:
events and state are pickled with a reference to ``__main__``.  So they are sent before the plan,
into the worker's otherwise empty ``__main__``.
"""

from __future__ import annotations

import inspect
import pickle
import sys
from typing import Any

from wallaroo.user_code.references import is_session, pickle_by_value


def pack_session() -> bytes:
    """Return the classes of this process's session, by value; ``b""`` if there is no session.

    A class that cannot be pickled by value is left out, as no step may use it.
    """
    if not is_session():
        return b""
    packed = {}
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if inspect.isclass(value) and value.__module__ == "__main__":
            content = by_value(value)
            if content is not None:
                packed[name] = content
    return pickle.dumps(packed)


def by_value(value: Any) -> bytes | None:
    """Pickle a class or function with all that it refers to; None if that is impossible."""
    try:
        return pickle_by_value(value)
    except Exception:  # noqa: BLE001  # a class may refer to anything
        return None


def unpack_session(packed: bytes) -> None:
    """Put the classes of a session into this process's ``__main__``, under their names."""
    if not packed:
        return
    main = sys.modules["__main__"]
    for name, content in pickle.loads(packed).items():
        setattr(main, name, pickle.loads(content))
