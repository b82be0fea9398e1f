"""Changes that sinks with keys apply besides rows: deletions.

Where it runs: encoders return them in workers; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of the row with a key, as an encoder of a sink with ``key=`` returns it.

    ``key`` is the value of the key's column; of several columns a tuple in their order.  A dict or
    a dataclass with the key's fields, such as the last version of the row, is accepted, too.
    """

    key: Any
