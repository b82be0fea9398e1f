"""Work in a thread that does not keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


def begun(work: Callable[[], None], name: str) -> Future[None]:
    """Start work in a thread of a name; the future raises its error for the thread that asks."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # raised by the thread that waits
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
