"""Write the table of metrics in ``docs/monitoring.md`` from the table of figures.

Where it runs: by hand, after a change of ``monitoring/status_api/figures.py``; a test reports an
old table.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.monitoring.status_api.figures import FIGURES, Figure

PAGE = Path(__file__).resolve().parent.parent / "docs" / "monitoring.md"
BEGINNING = "<!-- made by scripts/figures.py -->\n"
END = "<!-- end of figures -->\n"


def table() -> str:
    """Return the table, a row for each figure."""
    head = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n"
    return head + "".join(map(_row, FIGURES))


def page_of(text: str) -> str:
    """Return the text of the page with the present table in it."""
    before, _, rest = text.partition(BEGINNING)
    _, _, after = rest.partition(END)
    return f"{before}{BEGINNING}\n{table()}\n{END}{after}"


def _row(figure: Figure) -> str:
    meaning = "; ".join(filter(None, (figure.help.removesuffix("."), figure.remark)))
    cells = f"`{figure.family}`", figure.kind.value, ", ".join(figure.labels), meaning
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
