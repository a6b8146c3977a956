"""Review pages in a real browser: keyboard, layout and contrast, with scripts and Content-Security-Policy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from consolidation_pipeline.service.review.suggestions import get_suggestion
from consolidation_pipeline_tests.api.browser import CHROMIUM, Browser, open_browser
from consolidation_pipeline_tests.api.conftest import ApiContext
from consolidation_pipeline_tests.api.review_client import SHOP, add_pair_suggestions
from consolidation_pipeline_tests.service.corpus import note

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

NARROW_WIDTH, NARROW_HEIGHT = 390, 844


@pytest.fixture(scope="module")
def site(api: ApiContext) -> Iterator[str]:
    """URL of a server that runs the application."""
    server = uvicorn.Server(uvicorn.Config(api.app, host="127.0.0.1", port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser(api: ApiContext, site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Browser in which an admin is logged in."""
    folder: Path = tmp_path_factory.mktemp("browser")
    with open_browser(folder) as opened:
        opened.open(f"{site}/review")
        opened.type_text(api.key("admin"))
        opened.navigate(lambda: opened.evaluate("document.querySelector('main form').requestSubmit()"))
        assert opened.evaluate("location.pathname") == "/review"
        yield opened


def press_and_navigate(browser: Browser, key: str) -> None:
    """Press a key that opens another page and wait for it."""
    browser.navigate(lambda: browser.press(key))


@pytest.mark.slow
def test_keyboard_review_decides_edits_and_undoes(api: ApiContext, site: str, browser: Browser) -> None:
    ids = add_pair_suggestions(api.pipeline)
    browser.open(f"{site}/review")
    assert "1 of 10 waiting" in browser.text()
    for key in "ar":
        press_and_navigate(browser, key)
    browser.press("e")
    browser.wait_for("document.activeElement.id === 'content'")
    browser.type_text(" Ask before.")
    for letter in "ar":  # in the text field they are letters
        browser.press(letter)
    browser.press("Escape")
    for _ in range(3):
        press_and_navigate(browser, "a")
    assert "5 of 5" not in browser.text()
    press_and_navigate(browser, "u")
    assert "Undone." in browser.text()
    assert "1 of 6 waiting" in browser.text()
    press_and_navigate(browser, "j")
    assert "2 of 6 waiting" in browser.text()
    for key in "rarar":
        press_and_navigate(browser, key)
    assert "1 of 1 waiting" in browser.text()
    found = [get_suggestion(api.pipeline.engine, id_) for id_ in ids]
    short = {"validated": "a", "rejected": "r", "pending": "-"}
    assert "".join(short[one.status] for one in found) == "araa-rarar"
    assert {one.reviewed_by for one in found if one.status != "pending"} == {"web:admin of all projects"}
    query = "SELECT content FROM {s}.consolidated_memories WHERE project_id = :of AND retired_at IS NULL"
    of = api.pipeline.project(SHOP).id
    texts = {found[at].content for at in (0, 3, 6, 8)} | {f"{found[2].content} Ask before.ar"}
    assert {row.content for row in api.pipeline.rows(query, of=of)} == texts
    hidden = "SELECT count(*) FROM {s}.task_memories WHERE project_id = :of AND is_consolidated"
    assert api.pipeline.value(hidden, of=of) == 2 * 5
    assert browser.errors == []


def test_lineage_branch_expands_in_place(site: str, browser: Browser) -> None:
    browser.open(f"{site}/projects/notes/knowledge?kind=merged")
    browser.evaluate("document.querySelector('.branch summary').click()")
    browser.wait_for("document.querySelectorAll('.branch .node').length === 3")
    assert browser.errors == []


def test_texts_keep_indentation_and_direction(api: ApiContext, site: str, browser: Browser) -> None:
    texts = ["jobs:\n    build:  fast", "יש להפעיל את הבדיקות לפני כל פריסה."]
    api.pipeline.add([note(f"shown-{at}", text) for at, text in enumerate(texts)], "shown")
    browser.resize(1280, 860)
    browser.open(f"{site}/projects/shown/knowledge?kind=raw")
    assert texts[0] in browser.text()
    assert browser.evaluate(_LEFT_END_OF_HEBREW) > 1280 / 2
    assert browser.errors == []


# JavaScript: the position in pixels at which the text in Hebrew begins on the left.
_LEFT_END_OF_HEBREW = """
(() => {
  const link = [...document.querySelectorAll(".text a")].find((found) => found.textContent.startsWith("יש"));
  return link.getBoundingClientRect().left;
})()
"""


@pytest.mark.slow
def test_pages_fit_narrow_window_without_errors(api: ApiContext, site: str, browser: Browser) -> None:
    id_ = api.memory
    for path in (
        "/review",
        "/review?status=validated",
        "/projects",
        "/projects/notes",
        "/projects/notes/playbook",
        "/projects/notes/knowledge?kind=raw",
        f"/projects/notes/memories/{id_}",
        "/projects/notes/history",
        "/projects/notes/changes",
        f"/projects/notes/undo/{api.job_id}",
    ):
        browser.resize(NARROW_WIDTH, NARROW_HEIGHT)
        browser.open(f"{site}{path}")
        assert browser.evaluate("document.documentElement.scrollWidth") <= NARROW_WIDTH, path
    assert browser.errors == []


def test_text_contrast_meets_wcag_in_both_themes(site: str, browser: Browser) -> None:
    """WCAG 2 requires a contrast of 4.5 : 1 (success criterion 1.4.3)."""
    for path in ("/review", "/projects/notes", "/projects/notes/history"):
        for dark in (False, True):
            browser.resize(1280, 860, dark=dark)
            browser.open(f"{site}{path}")
            assert browser.evaluate(_LOW_CONTRAST_TEXTS) == [], (path, dark)


def test_api_docs_follow_the_color_scheme(site: str, browser: Browser) -> None:
    for dark in (True, False):
        browser.resize(1280, 860, dark=dark)
        browser.open(f"{site}/docs")
        assert browser.evaluate("document.documentElement.matches('.dark-mode')") is dark


# JavaScript: texts of the page with a contrast to the nearest background below 4.5, with that contrast.
_LOW_CONTRAST_TEXTS = """
(() => {
  const light = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((p) => p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest("svg, option, .skip, .sr, kbd, .faded") || !element.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) faint.push(`${element.className} ${element.textContent.slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return faint;
})()
"""
