"""The report: one file that answers offline, in a real browser; hostile text stays text; 5,000 frames open at once."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from studio.report.page import MARK, page
from tests import agents
from tests.big_run import big_run
from tests.cli import Cactus
from tests.test_exactness import script

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

Open = Callable[..., Any]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Return what opens a report, and check at the end that it complained of nothing and asked for nothing.

    The browser starts with the first: from then on its driver's event loop takes the place of any other.
    """
    pages: list[tuple[Any, list[str]]] = []
    driver, browser = playwright.sync_playwright(), None

    def open_page(path: Path, address: str = "", *, width: int = 1280, height: int = 860, **more: Any) -> Any:
        nonlocal browser
        browser = browser or driver.start().chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        context = browser.new_context(viewport={"width": width, "height": height}, **more)
        made, heard = context.new_page(), list[str]()
        made.on("console", lambda message: heard.append(message.text))
        made.on("pageerror", lambda error: heard.append(str(error)))
        made.on(
            "request",
            lambda request: heard.append(request.url) if not request.url.startswith(("file:", "data:")) else None,
        )
        made.goto(path.as_uri() + address)
        made.wait_for_selector("#rows [role=treeitem]", state="attached")
        pages.append((context, heard))
        return made

    yield open_page
    if browser:
        browser.close()
        driver.__exit__()
    assert [heard for _, heard in pages if heard] == []


@pytest.fixture
def report(cactus: Cactus, tmp_path: Path) -> Path:
    """Return the report of a run with a nested fork, a rejected answer and a citation."""
    cited = {"role": "aggregate", "frame": "0", "reply": "All of it: [0.0] and frame 0.1.1, not 0.9. [source: a.md]"}
    cactus(
        "solve", "the task", "--model", f"scripted:{script(tmp_path, cited)}", "--run-id", "r", "-c", "prices.*=3/15"
    )
    assert cactus("report", "r", "-o", "r.html").status == 0
    return cactus.folder / "r.html"


def until(made: Any, condition: str) -> None:
    """Wait until a condition holds in the page, whose policy forbids the driver to wait there itself."""
    for _ in range(100):
        if made.evaluate(condition):
            return
        made.wait_for_timeout(50)
    raise AssertionError(f"it never came to be that {condition}: {made.inner_text('body')[:500]}")


def frames(made: Any) -> list[str]:
    return [
        row.get_attribute("data-id") or row.inner_text() for row in made.query_selector_all("#rows [role=treeitem]")
    ]


# --- what it answers --------------------------------------------------------------------------------------------------


def test_the_overview_has_answer_totals_plan_and_links_to_the_frames_it_cites(report: Path, opened: Open) -> None:
    made = opened(report)
    said = made.inner_text("#content")
    assert "the task" in said
    assert "All of it: [0.0] and frame 0.1.1, not 0.9." in " ".join(said.split())
    assert made.text_content("#content a[href='#frame=0.0']") == "0.0"
    assert made.query_selector("#content a[href='#frame=0.9']") is None, "no such frame, no link"
    assert made.query_selector("#content svg") is not None
    made.click("#content a[href='#frame=0.1.1']")
    until(made, "document.querySelector('#content h2, #content .frameid')?.textContent.includes('0.1.1')")
    assert made.evaluate("location.hash") == "#frame=0.1.1"


def test_a_frame_shows_its_verdicts_prompts_and_replies(report: Path, opened: Open) -> None:
    made = opened(report, "#frame=0.0")
    made.wait_for_selector("#content details")
    said = made.inner_text("#content")
    assert "too short" in said
    for fold in made.query_selector_all("#content details"):
        fold.evaluate("each => { each.open = true; each.dispatchEvent(new Event('toggle')); }")
    until(made, "document.querySelector('#content').innerText.includes('answer to read')")
    assert "Judge the size of the task" in made.inner_text("#content")


def test_search_finds_tasks_and_prompts_and_filters_narrow(report: Path, opened: Open) -> None:
    made = opened(report)
    assert made.inner_text("#found").startswith("6 frames")
    made.press("body", "/")
    made.keyboard.type("weigh")
    until(made, "/^[12] of|^[12] /.test(document.querySelector('#found').innerText)")
    made.fill("#search", "Judge the size of the task")  # in prompts alone
    until(made, "document.querySelectorAll('#rows [role=treeitem]').length >= 6")
    made.fill("#search", "")
    made.click("#chips button[data-name=write]")
    until(made, "document.querySelector('#found').innerText.startsWith('1 ')")


def test_the_time_line_and_the_steps_are_drawn(report: Path, opened: Open) -> None:
    made = opened(report, "#view=time")
    made.wait_for_selector("#content canvas")
    assert "critical path" in made.inner_text("#content").lower()
    made.goto(report.as_uri() + "#view=steps&event=1")
    made.reload()
    made.wait_for_selector("#content input[type=range]")
    deepest = 0
    for _ in range(40):
        made.keyboard.press("]")
        deepest = max(deepest, len(made.query_selector_all("#content .stack li")))
    assert deepest >= 3, "a fork's frames are open together"


def test_keys_walk_the_tree(report: Path, opened: Open) -> None:
    made = opened(report, "#view=tree")
    made.focus("#tree")
    for key in ("j", "j", "ArrowUp", "Enter"):
        made.keyboard.press(key)
    until(made, "location.hash === '#frame=0.0'")
    assert made.evaluate("document.querySelector('#tree').getAttribute('role')") == "tree"
    assert made.query_selector("#rows [role=treeitem][aria-level='2']") is not None
    made.keyboard.press("?")
    assert made.is_visible("#help")
    made.keyboard.press("Escape")
    assert not made.is_visible("#help")


@pytest.mark.parametrize("view", ["overview", "tree", "frame", "time", "steps"])
def test_it_fits_a_narrow_screen_and_keeps_to_the_dark(report: Path, opened: Open, view: str) -> None:
    made = opened(report, f"#view={view}", width=390, height=800, color_scheme="dark")
    made.wait_for_timeout(150)
    assert made.evaluate("document.documentElement.scrollWidth") <= 390
    red, green, blue = map(
        int, re.findall(r"\d+", made.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]
    )
    assert max(red, green, blue) < 60


def test_it_can_be_printed(report: Path, opened: Open) -> None:
    made = opened(report)
    made.emulate_media(media="print")
    assert not made.is_visible("#views")
    assert len(made.pdf()) > 5000


# --- hostile, unfinished and large runs -------------------------------------------------------------------------------


def test_hostile_text_stays_text(cactus: Cactus, opened: Open) -> None:
    owned = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
    hostile = owned + " {{INDEX}} \u202ea\x07 [0.0] \udc81"
    model = cactus.script(default=hostile)
    cactus("solve", hostile, "--model", model, "--max-depth", "0", "--run-id", "r", "-c", "verifier=accept")
    assert cactus("report", "r", "-o", "r.html").status == 0
    for view in ("", "#frame=0", "#view=time", "#view=steps"):
        made = opened(cactus.folder / "r.html", view)
        made.wait_for_timeout(100)
        assert "owned" not in made.title()
        assert made.query_selector("#content img") is None
    assert "onerror=alert(1)" in opened(cactus.folder / "r.html").inner_text("#content")


@pytest.mark.parametrize("ending", ["killed", "limited", "waiting", "failed"])
def test_runs_that_did_not_succeed_are_told_too(cactus: Cactus, opened: Open, tmp_path: Path, ending: str) -> None:
    model = f"scripted:{script(tmp_path, *([{'role': 'solve', 'error': 'refusal'}] if ending == 'failed' else []))}"
    options = {"limited": ["--max-calls", "3"], "waiting": ["--approve", "plan"]}.get(ending, [])
    cactus("solve", "the task", "--model", model, "--run-id", "r", *options)
    events = [json.loads(line) for line in cactus("export", "r").out.splitlines()]
    kept = events[: len(events) // 2] if ending == "killed" else events
    (tmp_path / "r.html").write_text(page(kept), encoding="utf-8")
    made = opened(tmp_path / "r.html")
    word = {"killed": "no end yet", "waiting": "interrupted"}.get(ending, ending)
    assert word in made.inner_text("#status").lower() or ending in made.inner_text("#status").lower()


def test_an_agents_code_and_launches_are_shown(cactus: Cactus, opened: Open, tmp_path: Path) -> None:
    model = agents.script(tmp_path, *agents.NESTED)
    assert cactus("solve", "the task", "--profile", "agent", "--model", model, "--run-id", "r").status == 0
    assert cactus("report", "r", "-o", "r.html").status == 0
    made = opened(cactus.folder / "r.html", "#frame=0")
    made.wait_for_selector("#content details.cell")
    for fold in made.query_selector_all("#content details.cell"):
        fold.evaluate("each => { each.open = true; each.dispatchEvent(new Event('toggle')); }")
    until(made, "document.querySelectorAll('#content details.cell .body').length >= 3")
    said = made.text_content("#content")
    assert "seen = ['begun']" in said
    assert "['begun', 'left of leaf 0 and leaf 1 with 1'] 42 the rest" in said, "what the code printed"
    assert made.query_selector("#content details.cell a[href='#frame=0.1']") is not None


def test_findings_and_assignments_are_shown(cactus: Cactus, opened: Open, tmp_path: Path) -> None:
    model = f"scripted:{script(tmp_path)}"
    assert (
        cactus("solve", "review a.py and b.py", "--profile", "adaptive", "--model", model, "--run-id", "r").status == 0
    )
    assert cactus("report", "r", "-o", "r.html").status == 0
    assert "2 files" in opened(cactus.folder / "r.html", "#frame=0").inner_text("#content")
    made = opened(cactus.folder / "r.html", "#frame=0.0")
    made.wait_for_selector("#content details")
    assert "static_analysis (1.00)" in made.inner_text("#content")


def test_case_29_five_thousand_frames_open_in_less_than_three_seconds(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "big.html"
    path.write_text(page(big_run(5000)), encoding="utf-8")
    made = opened(path)
    assert made.evaluate("performance.now()") < 3000
    assert made.inner_text("#found").startswith("5,000 frames")
    assert len(frames(made)) < 200, "only what is in view is in the page"
    made.goto(path.as_uri() + "#view=time")
    made.wait_for_selector("#content canvas", timeout=3000)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_report_and_nothing_else(cactus: Cactus, report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert MARK in text[:1000]
    assert not re.findall(r"(?:src|href)=[\"']?https?:", text)
    assert cactus("report", "r", "-o", "r.html").status == 0, "a report may be written anew"
    (cactus.folder / "notes.html").write_text("mine")
    refused = cactus("report", "r", "-o", "notes.html")
    assert (refused.status, "--force" in refused.err) == (2, True)
    assert cactus("report", "r", "-o", "notes.html", "--force").status == 0
    assert cactus("report", "r", "-o", ".").status == 2
    assert cactus("report", "none", "-o", "x.html").status == 2
    assert not (cactus.folder / "x.html").exists()
    assert cactus("report", "r", "-o", "-").out == text, "the same run, the same bytes"
    assert cactus("report", "r").status == 0
    assert (cactus.folder / "r.html").exists()
