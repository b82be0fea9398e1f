"""Values of options as users give them: numbers, names and mappings.

Where it runs: where the application is built; pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

# what HTTP allows (RFC 9110, 5.1 and 5.5)
_is_header_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_is_header_value = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch


class Configuration(Protocol):
    """A source's or sink's configuration."""

    def _wrong(self, what: str, fix: str) -> Exception: ...


def is_count(value: Any, least: int = 1) -> bool:
    """Return whether a value is a whole number of at least ``least``.

    >>> is_count(5), is_count(1.5), is_count(float("nan")), is_count("5"), is_count(True)
    (True, False, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_at_least(value: Any, least: int) -> bool:
    """Return whether a value is a number, not NaN, of at least ``least``.

    >>> is_at_least(1.5, 1), is_at_least(float("nan"), 1), is_at_least("5", 1)
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


def is_seconds(value: Any) -> bool:
    """Return whether a value is a finite number of seconds, 0 or more."""
    return is_at_least(value, 0) and value < float("inf")


def as_names(value: Any) -> tuple[Any, ...]:
    """Return one or several names as a tuple; anything else unchanged.

    >>> as_names("a"), as_names(["a", "b"]), as_names(None), as_names(5)
    (('a',), ('a', 'b'), (), (5,))
    """
    if value is None:
        return ()
    return (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)


def names_twice(names: tuple[Any, ...]) -> str:
    """Return the first name that occurs twice; empty if none does.

    >>> names_twice(("a", "b", "a")), names_twice(("a", "b"))
    ('a', '')
    """
    return next((name for name in names if names.count(name) > 1), "")


def check_choice(config: Configuration, option: str, choices: Sequence[str]) -> None:
    """Raise WallarooParameterError if an option is not one of some words."""
    value = getattr(config, option)
    if value not in choices:
        fix = f"Write {' or '.join(map(repr, choices))}."
        raise config._wrong(f"{option}={value!r} is unknown.", fix)


def keep_port(config: Configuration, value: Any) -> None:
    """Keep ``port`` as a number; raise WallarooParameterError if ``value`` is not one."""
    try:
        port = int(value)
    except (TypeError, ValueError):
        port = 0
    if not 0 < port < 65536:
        raise config._wrong(f"{value!r} is not a port.", "Give a number from 1 to 65535.")
    object.__setattr__(config, "port", port)


def keep_dict(config: Configuration, option: str) -> None:
    """Copy an option's dict; raise WallarooParameterError if it is not one.

    The value is not shown: it may hold a password.
    """
    value: Mapping[Any, Any] = getattr(config, option)
    try:
        copy = dict(value)
    except (TypeError, ValueError):
        what = f"{option} is of the type {type(value).__name__}, not a dict."
        raise config._wrong(what, f"Give {option}={{'name': 'value'}}.") from None
    object.__setattr__(config, option, copy)


def keep_headers(config: Configuration, option: str) -> None:
    """Copy headers as a dict; raise WallarooParameterError if one cannot be sent."""
    keep_dict(config, option)
    headers: dict[Any, Any] = getattr(config, option)
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, (str, bytes, int))):
            what = f"{option} has a {type(value).__name__} for {name!r}; both have to be texts."
            raise config._wrong(what, f"Give {option}={{'name': 'value'}}.")
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        if not (_is_header_name(name) and _is_header_value(text)):
            fix = "Use letters, digits and - in its name, and no newline in its value (strip() it)."
            raise config._wrong(f"The header {name!r} cannot be sent.", fix)
        headers[name] = text
