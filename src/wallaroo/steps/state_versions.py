"""Versions of state classes, and functions that upgrade stored objects.

Functions are registered when the application's modules are imported in the driver, and sent to
workers with the plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from wallaroo.steps.kinds import Callback

FIRST = 1  # the version of a class that declares none
VERSION_MAX = 65_535
ATTRIBUTE = "state_version"
NO_ORDERS: Mapping[str, Sequence[str]] = MappingProxyType({})

Upgrade = Callable[[dict[str, Any]], Any]

_upgrades: dict[type[Any], dict[int, Upgrade]] = {}


@dataclass(frozen=True, slots=True)
class Evolution:
    """Differences between stored objects of a step and a new one.

    ``may_lack``: an attribute of a new object may be missing; ``upgrades``: functions by version;
    ``orders``: by version, the fields of objects that were pickled without names.
    """

    may_lack: bool = True
    upgrades: tuple[tuple[int, Callback], ...] = ()
    orders: tuple[tuple[int, tuple[str, ...]], ...] = ()


def version_of(cls: Any) -> Any:
    """Return the version that a state class declares.

    >>> version_of(dict)
    1
    """
    return getattr(cls, ATTRIBUTE, FIRST) if inspect.isclass(cls) else FIRST


def register(cls: type[Any], from_version: int, function: Upgrade) -> None:
    """Register the function that builds an object of ``cls`` from an older one's fields."""
    _upgrades.setdefault(cls, {})[from_version] = function


def registered(cls: Any) -> dict[int, Upgrade]:
    """Return the upgrade functions of a class, by the version that they accept."""
    return _upgrades.get(cls, {}) if inspect.isclass(cls) else {}


def evolution_of(
    cls: Any, may_lack: bool, orders: Mapping[str, Sequence[str]] = NO_ORDERS
) -> Evolution:
    """Return the differences to expect, with the functions registered here."""
    upgrades = ((version, Callback(each)) for version, each in sorted(registered(cls).items()))
    by_version = ((int(version), tuple(names)) for version, names in sorted(orders.items()))
    return Evolution(may_lack, tuple(upgrades), tuple(by_version))
