"""The check of texts: machine paths, and words that are not to come back."""

from __future__ import annotations

import pytest

from scripts import check_text


@pytest.mark.parametrize(
    "line",
    [
        "a user is told",
        "def test_a_cure_is_there():",
        "class Told:",
        "Somebody else",
        "self._stray_tasks = 1",
        "see " + "/ro" + "ot/thing",
    ],
)
def test_a_line_with_a_word_that_is_not_ours_is_refused(line: str) -> None:
    (complaint,) = check_text.complaints("src/a.py", f"\n{line}\n")
    assert complaint.startswith("src/a.py:2: ")


@pytest.mark.parametrize(
    "line", ["leave it away", "where it belongs into", "the broker is away", "it is tried again"]
)
def test_a_phrase_that_is_not_english_is_refused_in_what_users_read(line: str) -> None:
    (complaint,) = check_text.complaints("docs/a.md", line)
    assert complaint.startswith("docs/a.md:1: not how an engineer says it")
    assert not list(check_text.complaints("tests/a.py", line))


@pytest.mark.parametrize(
    "line",
    ["What rows lack is not sent.", "It ends. What came out is read.", "| **What is lost** |"],
)
def test_a_clause_as_subject_is_refused_in_pages(line: str) -> None:
    (complaint,) = check_text.complaints("docs/a.md", line)

    assert "a clause as subject" in complaint
    assert not list(check_text.complaints("docs/decisions/0001-a.md", line))


@pytest.mark.parametrize(
    "line",
    ["## What a step leaves out", "What to do", "What does it cost? Nothing.", "see what is"],
)
def test_questions_and_titles_may_begin_with_what(line: str) -> None:
    assert not list(check_text.complaints("docs/a.md", line))


@pytest.mark.parametrize("line", ["at the outlaws", "secure", "recommended", "tell", "skin"])
def test_other_words_pass(line: str) -> None:
    assert not list(check_text.complaints("src/a.py", line))


def test_texts_of_others_are_quoted_as_they_are() -> None:
    assert not list(check_text.complaints("LICENSE", "the laws of"))


def test_the_package_is_not_said_to_be_in_a_registry() -> None:
    (complaint,) = check_text.complaints("docs/a.md", "Needs `pip install 'wallaroo-spark[x]'`.")

    assert "in no registry" in complaint
    assert not list(check_text.complaints("docs/a.md", "pip install '.[kafka]'"))
