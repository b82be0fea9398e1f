"""The ``wallaroo`` command, one module with ``add_parser(subparsers)`` per subcommand.

Where it runs: a terminal, or the driver in it.  Nothing imports this package; as a program, it ends
without a traceback even if Ctrl-C arrives while its modules are imported.
"""

import sys
from types import TracebackType

_usual = sys.excepthook


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("wallaroo: interrupted", file=sys.stderr)
    else:
        _usual(kind, error, trace)


sys.excepthook = _end
