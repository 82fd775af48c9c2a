"""Reading what models say, and texts made safe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frames.text import clean, cut, one_line
from nodes.atomize import says_yes
from nodes.decompose import bullets
from nodes.verify import Verdict, read_verdict


@pytest.mark.parametrize(
    ("answer", "atomic"),
    [("yes", True), ("  YES, it is", True), ("\nYes.", True), ("no", False), ("It is: yes", False), ("", False)],
)
def test_yes(answer: str, atomic: bool) -> None:
    assert says_yes(answer) is atomic


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("ACCEPT", (True, "")),
        ("ACCEPT good work", (True, "good work")),
        ("  accepted: good", (True, "good")),
        ("REJECT too short", (False, "too short")),
        ("Rejected - it is wrong", (False, "it is wrong")),
        ("REJECT -5 is wrong", (False, "-5 is wrong")),
        ("REJECT: line one\nline two", (False, "line one\nline two")),
        ("I would ACCEPT", (False, "I would ACCEPT")),
        ("**ACCEPT**", (False, "**ACCEPT**")),
        ("", (False, "")),
    ],
)
def test_verdict(answer: str, verdict: tuple[bool, str]) -> None:
    assert read_verdict(answer) == Verdict(*verdict)


def test_bullets() -> None:
    text = "Here:\n- one\n* two\n  - three, indented\n-four\n1. five\n---\n**Bold**\n-\n- \n• six\n- with - dash *"
    assert bullets(text) == ["one", "two", "three, indented", "four", "with - dash *"]


def test_bullets_do_not_run_over_lines() -> None:
    assert bullets("-\nnext line") == []
    assert bullets("- a\r\n- b\r\n") == ["a", "b"]
    assert bullets("- - a\n* - b\n- -5 degrees") == ["a", "b", "-5 degrees"]


@given(st.text())
def test_clean_text_can_be_stored_and_stays(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert "\x00" not in cleaned
    cleaned.encode()
    assert len(cleaned) == len(text)


def test_clean_replaces_surrogates_and_keeps_the_rest() -> None:
    assert clean("a\udc81b\x00c") == "a\ufffdb\ufffdc"
    assert clean("\u200f🌵\t\n") == "\u200f🌵\t\n"


@given(st.text(), st.integers(1, 100))
def test_cut_and_one_line_hold_their_width(text: str, width: int) -> None:
    assert text.startswith(cut(text, width))
    assert len(one_line(text, width)) <= width
    assert "\n" not in one_line(text, width)
