"""Count the votes of a file without Wallaroo: what `alphabet.py` must arrive at.

    python alphabet_oracle.py alphabet_votes.msg > alphabet_expected.json

Where it runs: pure, save for the command line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def running_totals(messages: bytes) -> dict[str, list[int]]:
    """The totals of every letter, after each of its messages, in the order of the messages (nine
    bytes each).
    """
    totals: dict[str, list[int]] = {}
    for at in range(0, len(messages), 9):
        if int.from_bytes(messages[at : at + 4], "big") != 5:
            raise ValueError(f"byte {at}: a message of nine bytes begins with its length, 5")
        letter = chr(messages[at + 4])
        votes = int.from_bytes(messages[at + 5 : at + 9], "big")
        so_far = totals.setdefault(letter, [])
        so_far.append((so_far[-1] if so_far else 0) + votes)
    return totals


if __name__ == "__main__":
    last = {
        letter: totals[-1]
        for letter, totals in sorted(running_totals(Path(sys.argv[1]).read_bytes()).items())
    }
    print(json.dumps(last, indent=1))
