"""The forms of files: lines, CSV, Parquet.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

LINES = "lines"
CSV = "csv"
PARQUET = "parquet"
FORMS = (LINES, CSV, PARQUET)
SUFFIXES = {".parquet": PARQUET, ".csv": CSV}


def form_of(path: str) -> str:
    """Return the form that a path's suffix names; lines if it names none.

    >>> form_of("in/*.csv.gz"), form_of("in/*.parquet"), form_of("in")
    ('csv', 'parquet', 'lines')
    """
    name = path.removesuffix(".gz")
    return next((form for suffix, form in SUFFIXES.items() if name.endswith(suffix)), LINES)
