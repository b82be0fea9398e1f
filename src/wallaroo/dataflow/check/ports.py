"""Rules about addresses: valid, unique ports and unshared files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

from wallaroo.dataflow.check.subject import Subject, configs_of, problem_at, title_of
from wallaroo.dataflow.graph.nodes import SinkNode, SourceNode
from wallaroo.errors import Problem

PORT_MAX = 65535
FILES = ("file", "files")  # kinds of configurations with a path
EVERYWHERE = frozenset(("", "0.0.0.0", "::", "*"))
HERE = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True, slots=True)
class _Address:
    """A host and port that the application listens on, or connects to."""

    title: str
    place: str
    host: str
    port: Any
    listens: bool

    @property
    def number(self) -> int | None:
        """Return the port as a number in range, or None; 0, for a source, is a free port."""
        try:
            number = int(self.port)
        except (TypeError, ValueError):
            return None
        return number if (0 if self.listens else 1) <= number <= PORT_MAX else None

    def meets(self, other: _Address) -> bool:
        """Return whether the two ports conflict."""
        if not self.number or self.number != other.number:
            return False
        hosts = {"127.0.0.1" if host in HERE else host for host in (self.host, other.host)}
        return len(hosts) == 1 or bool(hosts & EVERYWHERE)


def _addresses(subject: Subject) -> Iterator[_Address]:
    for node in subject.nodes:
        for config in configs_of(node):
            if (
                hasattr(config, "host")
                and hasattr(config, "port")
                and getattr(config, "valid", True)
            ):
                listens = isinstance(node, SourceNode) and getattr(config, "has_port", True)
                yield _Address(title_of(node), node.place, str(config.host), config.port, listens)


def ports_are_numbers(subject: Subject) -> Iterator[Problem]:
    """Require ports that are numbers up to 65535."""
    for address in _addresses(subject):
        if address.number is None:
            least = "0 (any free port)" if address.listens else "1"
            what = f"{address.port!r} is not a port."
            yield Problem(
                address.title, address.place, what, f"Give a number from {least} to {PORT_MAX}."
            )


def ports_do_not_clash(subject: Subject) -> Iterator[Problem]:
    """Reject two sources on one port, and sinks that send to a source's port."""
    sources: list[_Address] = []
    for address in _addresses(subject):
        holder = next((other for other in sources if other.meets(address)), None)
        if holder and address.listens:
            what = f"Port {address.number} is taken by {holder.title} ({holder.place})."
            yield Problem(address.title, address.place, what, "Give each source a port of its own.")
        elif holder:
            what = (
                f"It sends to port {address.number}, where {holder.title} listens: the "
                f"application would read its own output."
            )
            yield Problem(address.title, address.place, what, "Send to the port of a receiver.")
        if address.listens:
            sources.append(address)


def sources_are_not_overwritten(subject: Subject) -> Iterator[Problem]:
    """Reject a file sink whose file a file source reads."""
    read = {str(PurePath(path)): node for node, path in _files(subject, SourceNode)}
    for node, path in _files(subject, SinkNode):
        written = PurePath(path)
        for pattern, source in read.items():
            is_within = written.suffix != "" and str(written.parent) == pattern
            if is_within or fnmatchcase(str(written), pattern):
                what = f"It writes {path}, which {title_of(source)} reads."
                yield problem_at(node, what, "Give the sink another path.")


def files_have_one_sink(subject: Subject) -> Iterator[Problem]:
    """Reject two file sinks with one path."""
    writers: dict[PurePath, Any] = {}
    for node, path in _files(subject, SinkNode):
        if other := writers.get(PurePath(path)):
            what = f"It writes {path}, as another sink does ({other.place})."
            yield problem_at(node, what, "Give every file sink a path of its own.")
        writers[PurePath(path)] = node


def _files(subject: Subject, kind: type[Any]) -> Iterator[tuple[Any, str]]:
    for node in subject.of(kind):
        for config in configs_of(node):
            if not isinstance(config, type) and getattr(config, "kind", "") in FILES:
                yield node, str(config.path)
