"""The schemes of URLs from users.

Where it runs: pure.
"""

from __future__ import annotations


def scheme_problem(url: str, example: str, *schemes: str) -> tuple[str, str] | None:
    """Return the problem of a URL with another scheme, and the remedy; None if there is none.

    >>> scheme_problem("wss://host", "ws://host:port/path", "ws", "wss")
    >>> scheme_problem("http://host", "ws://host:port/path", "ws", "wss")
    ('The url does not begin with ws:// or wss://.', "Write 'ws://host:port/path'.")
    """
    *others, last = (f"{scheme}://" for scheme in schemes)
    if url.startswith((*others, last)):
        return None
    what = f"The url does not begin with {', '.join(others)} or {last}."
    return what, f"Write {example!r}."
