"""``wallaroo dev`` within a test's process."""

from __future__ import annotations

import argparse
from typing import Any, cast

import wallaroo
from wallaroo.cli.dev.command import FileWatch, begin, serve


def developed(application: wallaroo.Application, watch: Any, *, until_now: bool = False) -> None:
    """Let ``wallaroo dev`` run an application until its input ends or ``watch`` sees a change."""
    options = argparse.Namespace(app=__file__, until_now=until_now, status=None)
    serve(begin(application, options), cast("FileWatch", watch))
