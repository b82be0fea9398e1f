"""The form of pages: a first paragraph about their purpose, anchors that exist, Home's parts."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "decisions" not in page.parts)
ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
HOME = (DOCS / "index.md").read_text()
README = (ROOT / "README.md").read_text()
WORDS_MIN = 6
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's titles, as Markdown's extension ``toc`` makes them."""
    text = FENCE.sub("", page.read_text())
    found: set[str] = set()
    for title in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        number = next(n for n in range(99) if (f"{slug}_{n}" if n else slug) not in found)
        found.add(f"{slug}_{number}" if number else slug)
    return found


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_the_anchors_that_a_page_links_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", FENCE.sub("", page.read_text()))
    lacking = [
        f"{file}#{anchor}"
        for file, anchor in links
        if (target := (page.parent / file) if file else page).suffix == ".md"
        and anchor not in anchors(target.resolve())
    ]
    assert lacking == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_a_paragraph_about_its_purpose(page: Path) -> None:
    title, _, rest = page.read_text().partition("\n")
    first = rest.strip().partition("\n\n")[0]

    assert title.startswith("# ")
    assert not re.match(r"```|[#|!:>*-]", first), first
    assert len(first.split()) >= WORDS_MIN


def test_home_has_five_cards_an_application_a_picture_and_three_figures() -> None:
    assert re.findall(r'^!!! \w+ "(\w+)"$', HOME, re.MULTILINE) == [
        "Try", "Build", "Kafka", "Deploy", "Migrate",
    ]  # fmt: skip
    assert "![The dashboard" in HOME


@pytest.mark.parametrize("part", [r"```python\n# clicks\.py\n.*?```", r"\$ make setup.*?```",
                                  r"\| [\d.]+ million events/s.*?\n\n"])  # fmt: skip
def test_home_and_the_readme_have_the_same_application_and_figures(part: str) -> None:
    home, readme = (re.search(part, text, re.DOTALL) for text in (HOME, README))

    assert home
    assert readme
    assert home[0] == readme[0]


def test_the_glossary_is_sorted_and_has_each_word_once() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    words = [row.replace("`", "").lower() for row in rows if row not in ("word", "---")]

    assert len(words) > 40
    assert words == sorted(set(words))


@pytest.mark.parametrize("word", [
    "backlog", "batch", "checkpoint", "commit", "driver", "egress", "epoch", "idle", "ingress",
    "key group", "late", "outbox", "owner", "pane", "spool", "stage", "standby", "take over",
    "view", "watermark", "feeder", "delta",
])  # fmt: skip
def test_the_glossary_explains_a_word_of_the_pages(word: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)

    assert any(word in row.lower() for row in rows)
