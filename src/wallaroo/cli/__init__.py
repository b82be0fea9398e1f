"""The ``wallaroo`` command: one module per subcommand, each with ``add_parser(subparsers)`` that
sets its ``handler``.

Where it runs: driver, or a terminal beside it.  Nothing imports this package; as a program, it ends
without a traceback where Ctrl-C comes while its modules are imported, too.
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
