"""Code for other hosts: this package and the application's modules.

It is sent as zip files that Spark passes to its executors.

With a local master nothing is shipped: the workers import from the same places as the driver.

Shipped: the ``wallaroo`` package; every module and package in the application's folders (that of
the file that was run, and others).  Not shipped: libraries.  They have to be installed on the
hosts, or shipped as an environment (docs/scaling.md).
"""

from __future__ import annotations

import py_compile
import secrets
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark import SparkContext

from wallaroo.errors import PeerError
from wallaroo.processes.environment import PACKAGE_ROOT

BYTES_MAX = 100 * 1024 * 1024  # per application's folder: a larger one contains more than code
NAME_BYTES = 16
SKIPPED = frozenset({"__pycache__", "site-packages", "node_modules"})


def ship(context: SparkContext, module_paths: Iterable[str], folder: Path) -> None:
    """Send the package and the application to all executors, present and future.

    The files are named after ``folder``: Spark knows files by name, and a session may run several
    applications.

    Raises PeerError if an application's folder holds more than ``BYTES_MAX``.
    """
    package = PACKAGE_ROOT
    # Spark sends a file to every client that knows its name, without asking for its secret
    name = f"{folder.name}-{secrets.token_hex(NAME_BYTES)}"
    context.addPyFile(str(_zipped(folder / f"{name}.zip", package.parent, _files_below(package))))
    for number, path in enumerate(dict.fromkeys(module_paths)):
        files = list(modules_in(Path(path)))
        if files:
            context.addPyFile(str(_zipped(folder / f"{name}-{number}.zip", Path(path), files)))


def modules_in(folder: Path, bytes_max: int = BYTES_MAX) -> Iterator[Path]:
    """Yield the files of modules and packages in a folder.  Raises PeerError: too large."""
    total = 0
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.suffix == ".py" and entry.is_file():
            files: Iterable[Path] = (entry,)
        elif entry.is_dir() and (entry / "__init__.py").exists() and entry != PACKAGE_ROOT:
            files = _files_below(entry)
        else:
            continue
        for file in files:
            total += file.stat().st_size
            if total > bytes_max:
                raise PeerError(
                    f"the application's folder {folder} holds more than {bytes_max // 1024**2} MB "
                    f"of modules and packages, "
                    "too much to send to the workers. Put the application into a folder of its own."
                )
            yield file


def _files_below(package: Path) -> Iterator[Path]:
    for entry in sorted(package.iterdir()):
        if entry.name.startswith(".") or entry.name in SKIPPED:
            continue
        if entry.is_dir():
            yield from _files_below(entry)
        elif entry.is_file():
            yield entry


def _zipped(target: Path, base: Path, files: Iterable[Path]) -> Path:
    """Write the files and compiled modules, which saves each Python worker a second."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as content:
        for file in files:
            name = file.relative_to(base)
            content.write(file, name)
            if file.suffix == ".py" and (code := _compiled(file, target.with_suffix(".pyc"))):
                content.writestr(str(name.with_suffix(".pyc")), code)
    return target


def _compiled(file: Path, target: Path) -> bytes:
    """Return a module's code, never compared with its source; empty if it is invalid."""
    try:
        py_compile.compile(
            str(file),
            str(target),
            file.name,
            True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except py_compile.PyCompileError:
        return b""
    return target.read_bytes()
