"""Loading of applications, by file or module name.

Where it runs: driver.

Invariant of names: a file is imported under its own name (``word_count.py`` is ``word_count``) with
its directory at the head of the search path, never as ``__main__``.  Workers import it under the
same name, so their pickles can be read anywhere, in any later run.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter
from pathlib import Path
from types import ModuleType

from wallaroo.api.application import Application
from wallaroo.api.building import dead_letters_come_later
from wallaroo.api.discarded import noting_pipelines
from wallaroo.cli.application.hints import hint_for
from wallaroo.cli.terminal.call_chain import is_of_library
from wallaroo.errors import PipelineError, Problem, WallarooError
from wallaroo.steps.kinds import place_of
from wallaroo.user_code.user_frames import user_frames
from wallaroo.user_code.worker_modules.edited import stamps
from wallaroo.user_code.worker_modules.setup_values import Place, changed, noted

_log = logging.getLogger("wallaroo.run")
FRAMES_MAX = 4  # innermost frames of the user's code that an error shows

# modules that neither Python's others nor the packages here import
_UNUSED = {
    "antigravity", "cgi", "cgitb", "chunk", "cmd", "code", "codeop", "colorsys", "crypt",
    "ensurepip", "fileinput", "ftplib", "idlelib", "imaplib", "lib2to3", "mailbox",
    "nntplib", "poplib", "profile", "pyclbr", "sched", "smtplib", "symtable", "tabnanny",
    "telnetlib", "test", "this", "timeit", "tkinter", "trace", "turtle", "turtledemo", "venv",
    "wave",
}  # fmt: skip


def load_application(app: str, args: Sequence[str]) -> Application:
    """Import ``app`` and return the application that its ``application_setup(args)`` built.

    ``app`` is a path such as ``word_count.py`` or a module's name.  Raises PipelineError if there
    is no such application, its import or set-up fails, or it returns something else.
    """
    module = import_application(app)
    setup = getattr(module, "application_setup", None)
    if not callable(setup):
        what = "it has no function application_setup(args)."
        raise _error(
            app,
            what,
            "Add one that returns build_application(name, pipeline).",
            str(module.__file__ or ""),
        )
    _check_signature(app, setup)
    modules = _own_modules(module)
    before = noted(modules)
    try:
        with dead_letters_come_later(), noting_pipelines():
            application = setup(list(args))
    except WallarooError:
        raise
    except Exception as error:
        raise _user_error(app, "application_setup failed", error, args) from error
    if not isinstance(application, Application):
        what = f"application_setup returned {_shortened(application)}, not an application."
        raise _error(
            app,
            what,
            "End it with: return wallaroo.build_application(name, pipeline).",
            place_of(setup),
        )
    values, left_out = changed(before, modules)
    _warn_of_values(setup, left_out)
    return application.with_hooks_of(vars(module)).with_setup_values(values)


def _check_signature(app: str, setup: Callable[..., object]) -> None:
    if inspect.iscoroutinefunction(setup):
        what = "application_setup is async; it is called, never awaited."
        raise _error(app, what, "Write it as: def application_setup(args):", place_of(setup))
    try:
        inspect.signature(setup).bind([])
    except TypeError as error:
        what = (
            f"application_setup cannot be called with one argument, the list of options: {error}."
        )
        fix = "Write it as: def application_setup(args):"
        raise _error(app, what, fix, place_of(setup)) from None
    except ValueError:  # written in C: no signature
        pass


def _own_modules(module: ModuleType) -> list[ModuleType]:
    """Return an application's module, and those of its folder that are loaded."""
    folder = Path(str(module.__file__)).parent
    others = (sys.modules[name] for name in stamps() if name in sys.modules)
    beside = [each for each in others if Path(str(each.__file__)).is_relative_to(folder)]
    return [module, *(each for each in beside if each is not module)]


def _warn_of_values(setup: Callable[..., object], places: Sequence[Place]) -> None:
    if places:
        _log.warning(
            "application_setup (%s) assigns %s, which cannot be sent to workers: they import the "
            "module and do not call it, so steps find the value that the import assigns. Pass it "
            "to them: functools.partial(function, value)",
            place_of(setup),
            ", ".join(map(str, places)),
        )


def import_application(app: str) -> ModuleType:
    """Import an application's module under its name on workers, its directory first on the path."""
    path = _file_of(app)
    name = path.stem if path else app
    if not all(part.isidentifier() for part in name.split(".")):
        raise _error(
            app,
            f"'{name}' cannot be a module's name.",
            "Rename the file: letters, digits and underscores.",
        )
    folder = path.parent if path else Path.cwd()
    _check_names(app, folder, name)
    _put_first(str(folder))
    try:
        module = importlib.import_module(name)
    except WallarooError:
        raise
    except ModuleNotFoundError as error:
        if error.name == name:
            raise _error(
                app,
                "there is no such file or module.",
                "Give the path of its file, such as word_count.py.",
            ) from None
        raise _user_error(app, "the import failed", error) from error
    except Exception as error:
        raise _user_error(app, "the import failed", error) from error
    if path and Path(module.__file__ or "").resolve() != path:
        other = module.__file__ or "Python itself"
        raise _error(
            app,
            f"the name '{name}' already belongs to {other}.",
            "Rename the application's file.",
            str(path),
        )
    return module


def _check_names(app: str, folder: Path, name: str) -> None:
    """Refuse files that would be imported instead of modules of Python's own."""
    needed = sys.stdlib_module_names - _UNUSED
    for file in sorted(file for file in folder.iterdir() if file.stem in needed):
        is_module = file.suffix == ".py" or (file / "__init__.py").is_file()
        # the application's own file is compared with the imported one
        if not is_module or (file.stem == name and name in sys.modules):
            continue
        if not _is_found_first(file.stem):
            raise _error(
                app,
                f"{file.name}, in its folder, would be imported in place of Python's own module "
                f"'{file.stem}'.",
                f"Rename {file.name}, and the imports of it.",
                str(file),
            )


def _is_found_first(name: str) -> bool:
    """Return whether Python finds its own module of this name before any file."""
    return bool(BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name))


def _file_of(app: str) -> Path | None:
    path = Path(app)
    if path.suffix != ".py" and "/" not in app:
        return None
    if path.is_dir():
        raise _error(
            app,
            "it is a directory.",
            f"Name the application's file: {path / (path.resolve().name + '.py')}.",
        )
    if not path.is_file():
        raise _error(app, f"there is no such file ({path.resolve()}).", "Correct the path.")
    if path.suffix != ".py":
        raise _error(app, "it is not a Python file.", "Give the path of a .py file.")
    return path.resolve()


def _put_first(directory: str) -> None:
    if directory in sys.path:
        sys.path.remove(directory)
    sys.path.insert(0, directory)


def _error(app: str, what: str, fix: str, place: str = "") -> PipelineError:
    return PipelineError(Problem(f"application '{app}'", place, what, fix))


def _user_error(app: str, where: str, error: Exception, args: Sequence[str] = ()) -> PipelineError:
    called = user_frames(error.__traceback__)
    frames = [frame for frame in called if not is_of_library(frame.filename)][-FRAMES_MAX:]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    cause = "".join(traceback.format_exception_only(error)).strip()
    lines = "".join(
        f"\n  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames
    )
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}" if error.filename else ""
        cause = f"SyntaxError: {error.msg}"
        lines = _shown_syntax(error)
    hint = hint_for(error, args)
    return _error(app, f"{where}: {cause}{lines}", f"\n  {hint}" if hint else "", place)


def _shown_syntax(error: SyntaxError) -> str:
    """Return the faulty line, and a mark below the position in it."""
    if not error.text:
        return ""
    line = error.text.rstrip("\n")
    start = len(line) - len(line.lstrip())
    column = max((error.offset or 1) - 1 - start, 0)
    return f"\n    {line.strip()}\n    {' ' * column}^"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
