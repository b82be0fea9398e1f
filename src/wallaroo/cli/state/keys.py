"""Interpretations of a key on the command line."""

from __future__ import annotations

import ast
import contextlib

from wallaroo.engine.blocks.keys import Key, normalize_key


def candidates(text: str, key_type: str | None) -> list[Key]:
    """Return the possible keys for a text, the most likely first.

    >>> candidates("7", None), candidates("b'a'", "bytes"), candidates("('a', 7)", "tuple")
    (['7', b'7', 7], [b'a'], [('a', 7)])
    """
    keys: list[Key] = [text, text.encode("utf-8", "surrogateescape")]
    with contextlib.suppress(ValueError):
        keys.append(int(text))
    if text[:1] in ("'", '"') or text[:2] in ("b'", 'b"') or text[:1] == "(":
        with contextlib.suppress(ValueError, SyntaxError, TypeError):
            written = normalize_key(ast.literal_eval(text))
            keys.insert(0, written)
            if key_type:  # quotes and a type: certainly a literal
                keys = [key for key in keys if type(key) is not type(written) or key == written]
    return [key for key in keys if key_type in (None, type(key).__name__)]
