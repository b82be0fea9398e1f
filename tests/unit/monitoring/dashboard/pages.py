"""What is checked of every page of the dashboard."""

from __future__ import annotations

from typing import Any

import pytest

GRAVE = ("serious", "critical")
# the right edges of what is shown, but for the parts of tables that scroll and say so; charts
# follow the size of the window a few frames later
_CUT = """async () => {
    const cut = () => [...document.querySelectorAll("main *, header *")]
        .filter((e) => e.checkVisibility() && !e.closest(".unseen, .u-over, thead"))
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => `${e.tagName} ${e.getAttribute("class")}: ${e.textContent.slice(0, 60)}`)
    for (let frames = 0; frames < 300 && cut().length; frames++)
        await new Promise(requestAnimationFrame)
    return cut()
}"""
# names of the pipeline that end in an ellipsis
_SHORTENED = """() => [...document.querySelectorAll(".node text.name")]
    .map((one) => one.textContent).filter((text) => text.endsWith("…"))"""


def expect(what: Any) -> Any:
    """Assertions that wait without evaluating a string in the page, which its policy forbids."""
    return pytest.importorskip("playwright.sync_api").expect(what)


def serious_problems(page: Any, axe: str) -> list[str]:
    """What axe-core finds that is serious or critical, each with its first element."""
    page.evaluate(axe)
    found = page.evaluate("async () => (await axe.run(document)).violations")
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {one['nodes'][0]['html'][:200]} "
        f"{one['nodes'][0].get('failureSummary', '')}"
        for one in found
        if one["impact"] in GRAVE
    ]


def assert_nothing_is_cut(page: Any) -> None:
    """Nothing reaches beyond the right edge of the window."""
    assert page.evaluate(_CUT) == []
    assert page.evaluate(_SHORTENED) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
