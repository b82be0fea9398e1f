"""The system calls of simulated processes: counted, and failed where the plan of faults says so.

Where it runs: the simulation's process, which has one thread.

Calls that change a disk are replaced in ``os`` while the simulation runs.  Each is a *step*: a
process may be killed at it, the power may fail, the call may fail or do half of its work.  A
process that is dead makes no further step: whatever its ``finally`` clauses try does not happen.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import wallaroo.spool.recovery
import wallaroo.spool.segment_file
from tests.simulation.disk import File, Folder, Write

CALLS = "open close write pwrite pwritev fsync fdatasync ftruncate rename replace unlink mkdir"
OPENING = (wallaroo.spool.recovery, wallaroo.spool.segment_file)  # these write through ``open``
ALLOCATING = frozenset({"create", "write", "mkdir", "rename"})


class Crashed(BaseException):
    """A simulated process died here."""


class Fault(Enum):
    """What happens at a step."""

    KILL = "process killed"
    KILL_TORN = "process killed in the middle of a write"
    POWER = "power cut"
    POWER_AFTER = "power cut right after a call"
    POWER_TORN = "power cut in the middle of a write"
    ENOSPC = "disk full"
    EIO = "disk error"
    SHORT = "short write"
    LOST = "write that never reached the disk"
    MISDIRECTED = "write to another place"


FAILURES = {Fault.ENOSPC: errno.ENOSPC, Fault.EIO: errno.EIO}
WRITES_ONLY = frozenset({Fault.KILL_TORN, Fault.POWER_TORN, Fault.SHORT})
CORRUPTIONS = frozenset({Fault.LOST, Fault.MISDIRECTED})


@dataclass(slots=True, eq=False)
class Process:
    """A simulated process."""

    name: str
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class Handle:
    """An open descriptor."""

    process: Process
    node: File | Folder
    path: str
    is_appending: bool = False


class Step(NamedTuple):
    """A step that was made: for the list of all places where a fault can strike."""

    call: str
    path: str
    process: str


@dataclass(slots=True)
class Plan:
    """Which step fails how; ``lasting`` steps after a disk error or a full disk fail, too."""

    at: dict[int, Fault] = field(default_factory=dict)
    lasting: int = 0


class System:
    """The calls, and the disk behind them."""

    def __init__(self, root: Path, chance: random.Random, plan: Plan):
        self.root = root
        self.plan = plan
        self.steps = 0
        self.injected: Counter[str] = Counter()
        self.log: list[Step] = []
        self.current = Process("none")
        self.has_power = True
        self.between: Callable[[], None] = lambda: None  # called between two steps
        self.call = ""  # the step that is about to be made
        self.place = ""  # its path, below the root
        self._chance = chance
        self._disk = Folder()
        self._prefix = f"{root}{os.sep}"
        self._handles: dict[int, Handle] = {}
        self._failing: tuple[Fault, int] | None = None  # how many more steps fail
        self._due: list[Fault] = []  # faults that wait for a call they can strike

    # -- processes --------------------------------------------------------------------------------

    @contextmanager
    def running(self, process: Process) -> Iterator[None]:
        """What is called inside is done by ``process``."""
        before = self.current
        self.current = process
        try:
            yield
        finally:
            self.current = before

    def bury(self, process: Process) -> None:
        """Close what a process had open; its locks are free."""
        process.is_dead = True
        for descriptor in [fd for fd, one in self._handles.items() if one.process is process]:
            del self._handles[descriptor]
            REAL["close"](descriptor)

    def lose_power(self) -> None:
        """Leave what a power cut leaves, and switch on again.  All processes are buried."""
        self._disk.lose(self._chance)
        self._uninstall()
        shutil.rmtree(self.root)
        self.root.mkdir(mode=0o700)
        self._disk.restore(self.root)
        self.install()
        self._failing = None
        self.has_power = True

    def repair(self) -> None:
        """Let the disk have room and work again."""
        self._failing = None
        self._due.clear()

    # -- steps ------------------------------------------------------------------------------------

    def _step(self, call: str, path: str) -> Fault | None:
        """Count a step; raise where it is one that fails as a whole, return what it is to do
        wrong.
        """
        if self.current.is_dead or not self.has_power:
            raise Crashed
        self.call, self.place = call, path[len(self._prefix) :]
        self.between()
        if self.current.is_dead or not self.has_power:
            raise Crashed
        self.steps += 1
        self.log.append(Step(call, path[len(self._prefix) :], self.current.name))
        if (planned := self.plan.at.get(self.steps)) is not None:
            self._due.append(planned)
        fault = self._strike(call, path)
        if fault in FAILURES:
            raise OSError(FAILURES[fault], os.strerror(FAILURES[fault]), path)
        if fault is Fault.KILL:
            self.current.is_dead = True
            raise Crashed
        if fault is Fault.POWER:
            self.has_power = False
            raise Crashed
        return fault

    def _strike(self, call: str, path: str) -> Fault | None:
        if self._failing is not None:
            fault, left = self._failing
            self._failing = (fault, left - 1) if left > 1 else None
            if fault is Fault.EIO or call in ALLOCATING:
                self.injected[f"{fault.value}: {call}"] += 1
                return fault
        for fault in self._due:
            if self._fits(fault, call, path):
                self._due.remove(fault)
                self.injected[f"{fault.value}: {call}"] += 1
                if fault in FAILURES and self.plan.lasting:
                    self._failing = (fault, self.plan.lasting)
                return fault
        return None

    def _fits(self, fault: Fault, call: str, path: str) -> bool:
        if fault in CORRUPTIONS:
            return call == "write" and path.startswith(f"{self._prefix}checkpoint{os.sep}")
        if fault in WRITES_ONLY:
            return call == "write"
        if fault is Fault.ENOSPC:
            return call in ALLOCATING
        return True

    def _done(self, fault: Fault | None) -> None:
        if fault is Fault.POWER_AFTER:
            self.has_power = False
            raise Crashed

    # -- calls ------------------------------------------------------------------------------------

    def install(self) -> None:
        """Replace the calls."""
        for name in CALLS.split():
            setattr(os, name, getattr(self, name))
        os.fdopen = self._fdopen  # type: ignore[assignment]
        for module in OPENING:
            module.open = self._open_file  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Put the real ones back; close everything."""
        self._uninstall()
        for descriptor in self._handles:
            REAL["close"](descriptor)
        self._handles.clear()

    def _uninstall(self) -> None:
        for name, real in REAL.items():
            setattr(os, name, real)
        os.fdopen = FDOPEN
        for module in OPENING:
            del module.open  # type: ignore[attr-defined]

    def _is_ours(self, path: str) -> bool:
        return path.startswith(self._prefix) and f"{os.sep}view{os.sep}" not in path

    def _known(self, path: str) -> File | Folder | None:
        return self._disk if path == str(self.root) else self._node(path)

    def _folder(self, path: str) -> Folder:
        folder: File | Folder = self._disk
        for name in path[len(self._prefix) :].split(os.sep)[:-1]:
            assert isinstance(folder, Folder)
            folder = folder.names[name]
        assert isinstance(folder, Folder)
        return folder

    def _node(self, path: str) -> File | Folder | None:
        return self._folder(path).names.get(os.path.basename(path))

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = os.fspath(path)
        is_ours = isinstance(name, str) and (self._is_ours(name) or name == str(self.root))
        if dir_fd is not None or not is_ours:
            return REAL["open"](path, flags, mode, dir_fd=dir_fd)  # type: ignore[no-any-return]
        fault: Fault | None = None
        known = self._known(name)
        is_cutting = bool(flags & os.O_TRUNC) and known is not None
        if flags & os.O_CREAT and (known is None or is_cutting):
            fault = self._step("create", name)
            known = self._known(name)  # another driver may have renamed it meanwhile
            is_cutting = bool(flags & os.O_TRUNC) and known is not None
        descriptor: int = REAL["open"](path, flags, mode)
        if known is None:
            known = File()
            self._folder(name).change({os.path.basename(name): known})
        elif is_cutting:
            assert isinstance(known, File)
            known.unsynced.append(Write(0, None))
        self._handles[descriptor] = Handle(self.current, known, name, bool(flags & os.O_APPEND))
        self._done(fault)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._handles.pop(descriptor, None)
        REAL["close"](descriptor)

    def write(self, descriptor: int, content: Any) -> int:
        handle = self._handles.get(descriptor)
        if handle is None:
            return REAL["write"](descriptor, content)  # type: ignore[no-any-return]
        if handle.is_appending:
            offset = os.fstat(descriptor).st_size
        else:
            offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        count = self._written(handle, descriptor, bytes(content), offset)
        os.lseek(descriptor, offset + count, os.SEEK_SET)
        return count

    def pwrite(self, descriptor: int, content: Any, offset: int) -> int:
        handle = self._handles.get(descriptor)
        if handle is None:
            return REAL["pwrite"](descriptor, content, offset)  # type: ignore[no-any-return]
        return self._written(handle, descriptor, bytes(content), offset)

    def pwritev(self, descriptor: int, parts: Any, offset: int, flags: int = 0) -> int:
        return self.pwrite(descriptor, b"".join(parts), offset)

    def _written(self, handle: Handle, descriptor: int, content: bytes, offset: int) -> int:
        assert isinstance(handle.node, File)
        fault = self._step("write", handle.path)
        if fault in WRITES_ONLY:
            content = content[: self._chance.randrange(len(content))] if content else content
        if fault is Fault.MISDIRECTED:
            offset = self._chance.choice((0, SECTOR, offset + SECTOR))
        if fault is not Fault.LOST:
            _put(descriptor, content, offset)
            handle.node.unsynced.append(Write(offset, content))
        if fault is Fault.KILL_TORN:
            self.current.is_dead = True
            raise Crashed
        if fault is Fault.POWER_TORN:
            self.has_power = False
            raise Crashed
        self._done(fault)
        return len(content)

    def fsync(self, descriptor: int) -> None:
        handle = self._handles.get(descriptor)
        if handle is None:
            REAL["fsync"](descriptor)
            return
        try:
            fault = self._step("fsync", handle.path)
        except OSError:
            if isinstance(handle.node, File):
                handle.node.lose(self._chance)
            raise
        handle.node.sync()
        self._done(fault)

    fdatasync = fsync

    def ftruncate(self, descriptor: int, length: int) -> None:
        handle = self._handles.get(descriptor)
        if handle is None:
            REAL["ftruncate"](descriptor, length)
            return
        fault = self._step("truncate", handle.path)
        assert isinstance(handle.node, File)
        REAL["ftruncate"](descriptor, length)
        handle.node.unsynced.append(Write(length, None))
        self._done(fault)

    def rename(self, source: Any, target: Any, **options: Any) -> None:
        old, new = os.fspath(source), os.fspath(target)
        if not self._is_ours(old):
            REAL["rename"](source, target, **options)
            return
        fault = self._step("rename", new)
        REAL["rename"](old, new)
        before, after = os.path.basename(old), os.path.basename(new)
        folder = self._folder(old)
        node = folder.names[before]
        if self._folder(new) is folder:
            folder.change({before: None, after: node})
        else:
            self._folder(new).change({after: node})
            folder.change({before: None})
        self._done(fault)

    replace = rename

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = os.fspath(path)
        if dir_fd is not None or not self._is_ours(name):
            REAL["unlink"](path, dir_fd=dir_fd)
            return
        if not os.path.lexists(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        fault = self._step("unlink", name)
        REAL["unlink"](name)
        self._folder(name).change({os.path.basename(name): None})
        self._done(fault)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = os.fspath(path)
        if dir_fd is not None or not self._is_ours(name) or os.path.lexists(name):
            REAL["mkdir"](path, mode, dir_fd=dir_fd)
            return
        fault = self._step("mkdir", name)
        REAL["mkdir"](name, mode)
        self._folder(name).change({os.path.basename(name): Folder()})
        self._done(fault)

    def _fdopen(self, descriptor: int, *arguments: Any, **options: Any) -> Any:
        if descriptor in self._handles:
            return Raw(self, descriptor)
        return FDOPEN(descriptor, *arguments, **options)

    def close_file(self, descriptor: int, handle: Handle | None) -> None:
        """Close a descriptor, if it still is this one."""
        if self._handles.get(descriptor) is handle:
            self.close(descriptor)

    def handle(self, descriptor: int) -> Handle | None:
        """What a descriptor is open for."""
        return self._handles.get(descriptor)

    def _open_file(self, file: Any, mode: str = "r", buffering: int = -1) -> Any:
        """``open`` of the modules that write through it."""
        if mode not in ("r+b", "wb"):
            return builtins.open(file, mode, buffering)
        size = buffering if buffering > 0 else io.DEFAULT_BUFFER_SIZE
        descriptor = file if isinstance(file, int) else self.open(file, os.O_RDWR)
        return io.BufferedWriter(Raw(self, descriptor), size)


class Raw(io.RawIOBase):
    """A file whose writes are steps."""

    def __init__(self, system: System, descriptor: int):
        self._system = system
        self._descriptor = descriptor
        self._handle = system.handle(descriptor)
        self._is_open = True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, content: Any) -> int:
        return self._system.write(self._descriptor, content)

    def truncate(self, size: int | None = None) -> int:
        assert size is not None
        self._system.ftruncate(self._descriptor, size)
        return size

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._system.close_file(self._descriptor, self._handle)
        super().close()


SECTOR = 512
FDOPEN = os.fdopen
REAL: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in CALLS.split()}


def _put(descriptor: int, content: bytes, offset: int) -> None:
    done = 0
    while done < len(content):
        done += REAL["pwrite"](descriptor, content[done:], offset + done)
