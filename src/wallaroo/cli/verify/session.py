"""A verification with its receiver, as ``wallaroo verify`` runs it.

Where it runs: a terminal; the application's processes are its children.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wallaroo.cli.receive.receiver import Receiver
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.testing.verify.baseline import Observed, compare
from wallaroo.testing.verify.harness import Verification
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.plain_receiver import PlainReceiver
from wallaroo.testing.verify.trial.result import Faults, Result

CONNECT_S_MAX = 300.0  # how long a sender waits for a run that restarts


def verify(
    options: VerifyOptions, folder: Path, is_quiet: bool = False, behaviour: str = ""
) -> Result:
    """Verify one application in ``folder``; a ``behaviour`` selects a plain receiver."""
    output = folder / "output"
    with (
        output.open("wb") as out,
        PlainReceiver(out, behaviour)
        if behaviour
        else Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
    ):
        verification = Verification(options, folder, receiver, output, send, reporter(is_quiet))
        result = verification.run()
        out.flush()
    if isinstance(verification.case, Observed):
        _compare_with_undisturbed(options, folder, verification, result, is_quiet)
    return result


def _compare_with_undisturbed(
    options: VerifyOptions, folder: Path, disturbed: Verification, result: Result, is_quiet: bool
) -> None:
    """Run the application again with the same input and without faults.

    Differences of outputs and states are added to the result.
    """
    apart = folder / "undisturbed"
    apart.mkdir()
    plain = replace(options, kills=0, fault_points=(), events=disturbed.sent, is_plain=False)
    output = apart / "output"
    with (
        output.open("wb") as out,
        PlainReceiver(out, "silent")
        if options.is_plain
        else Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
    ):
        say = reporter(is_quiet)
        say("running it again with the same input and without faults")
        reference = Verification(plain, apart, receiver, output, send, say)
        ended = reference.run().ended_by_itself
        out.flush()
    result.ended_by_itself += [f"without faults: {end}" for end in ended]
    first = disturbed.case
    expected = reference.case
    assert isinstance(first, Observed)
    assert isinstance(expected, Observed)
    differences = Faults()
    compare(first, expected, differences)
    if options.is_plain:  # at least once
        result.repeated = differences.duplicated
        differences.duplicated = 0
    result.faults.add(differences)


def send(
    port: int, stream: str, payloads: list[bytes], rate: float, host: str = "127.0.0.1"
) -> None:
    """Send one portion of events; return when all are acknowledged."""
    send_acknowledged(
        (host, port), stream, of_payloads(payloads), connect_timeout_s=CONNECT_S_MAX, rate=rate
    )


def reporter(is_quiet: bool) -> Callable[[str], None]:
    """Return the function that prints a verification's progress."""
    return _nothing if is_quiet else _say


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nothing(text: str) -> None:
    """Print nothing."""
