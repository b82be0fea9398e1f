"""Values and arguments that the options of several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole(least: int, most: int | None = None, way_on: str = "") -> Callable[[str], int]:
    """Return the parser of whole numbers within bounds; ``way_on`` ends its refusal."""

    def whole_number(text: str) -> int:
        number = int(text)
        if most is None and number < least:
            raise argparse.ArgumentTypeError(f"{text} is too small: at least {least}")
        if most is not None and not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}{way_on}")
        return number

    return whole_number


def seconds(text: str) -> float:
    """Parse a time above 0."""
    time_s = float(text)
    if not 0 < time_s < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time: give seconds above 0")
    return time_s


def add_application(parser: argparse.ArgumentParser, rest: str) -> None:
    """Add APP and the arguments after it; ``rest`` is their help."""
    parser.add_argument(
        "app", metavar="APP", help="the application: its Python file, or a module's name"
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help=rest)


def application_args(options: argparse.Namespace) -> list[str]:
    """Return the arguments after APP, for commands without options of their own there."""
    rest: list[str] = options.rest
    return rest[1:] if rest[:1] == ["--"] else rest


def add_header(parser: argparse.ArgumentParser, form: str = "") -> None:
    """Add the options for the header of frames; ``form`` begins their help."""
    parser.add_argument(
        "--header-length",
        type=int,
        default=4,
        metavar="BYTES",
        help=f"{form}size of the header (default 4)",
    )
    parser.add_argument(
        "--length-fmt",
        default=">I",
        metavar="FMT",
        help=f"{form}struct format of the header (default '>I')",
    )
