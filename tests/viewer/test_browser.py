"""A report opened from disk, and the page of play, in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agym.machine import find_browser
from agym.viewer.report.page import write_report
from playwright.sync_api import Page, expect, sync_playwright

from .served import write_run
from .test_report import hostile_run

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(find_browser() is None, reason="there is no browser")]

_WAIT_MS = 60_000


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    expect.set_options(timeout=_WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), timeout=_WAIT_MS)
        opened = browser.new_page()
        opened.set_default_timeout(_WAIT_MS)
        yield opened
        browser.close()


@contextmanager
def listened(page: Page) -> Iterator[list[str]]:
    """What goes wrong meanwhile: errors, warnings, dialogs, requests that leave the page."""
    heard: list[str] = []
    listeners = {
        "console": lambda message: heard.append(message.text),
        "pageerror": lambda error: heard.append(str(error)),
        "dialog": lambda dialog: (heard.append(dialog.message), dialog.dismiss()),
    }
    for event, listener in listeners.items():
        page.on(event, listener)  # type: ignore[call-overload]
    yield heard
    for event, listener in listeners.items():
        page.remove_listener(event, listener)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_opens_from_disk_draws_and_runs_nothing_of_a_stranger(page: Page, tmp_path: Path, scheme: str) -> None:
    report = write_report([write_run(tmp_path / "door"), hostile_run(tmp_path / "evil")], tmp_path / "cache")
    (tmp_path / "report.html").write_text(report.page, encoding="utf-8")
    with listened(page) as heard:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.goto((tmp_path / "report.html").as_uri())
        expect(page.get_by_role("table").first).to_contain_text("door")
        assert page.locator("section").count() == 2
        assert page.locator("figure svg path").count() > 3
        first = page.locator("section").first
        expect(first).to_contain_text("5 of 5 episodes")
        first.get_by_role("searchbox").fill("door-2")
        expect(first).to_contain_text("1 of 5 episodes")
        for details in page.locator("details").all():
            if details.is_visible():
                details.locator("summary").first.press("Enter")
        expect(first.locator("pre", has_text="Action: open door").first).to_be_visible()
        evil = page.locator("section").last
        expect(evil.locator("pre", has_text="alert(1)").first).to_be_visible()
        assert r"\u202e\u0007\u2028\ud800" in evil.inner_text()
        for width in (375, 2560):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert page.locator("script").count() == 2
        assert page.locator("img").count() == 0
    assert heard == []


@contextmanager
def playing(tmp_path: Path, *words: str) -> Iterator[str]:
    """`agym envs play --browser` in a process of its own; gives its address."""
    command = [sys.executable, "-P", "-m", "agym", "envs", "play", *words, "--browser", "--no-open", "--save", "played"]
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.terminate()
            assert process.wait(_WAIT_MS / 1000) == 0
        finally:
            process.kill()


def test_an_episode_is_played_and_saved_in_a_browser(page: Page, tmp_path: Path) -> None:
    with playing(tmp_path, "counter", "--task", "reach-7") as url, listened(page) as heard:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{40,}/", url)
        page.goto(url)
        expect(page.get_by_role("heading", name="counter")).to_be_visible()
        expect(page.get_by_label("task")).to_have_value("reach-7")
        page.get_by_role("button", name="Begin").press("Enter")
        expect(page.get_by_role("status")).to_contain_text("task reach-7, seed 0; 0 of 10 turns")
        page.get_by_label("action", exact=True).fill("<img src=x onerror=alert(1)>")
        page.get_by_label("action", exact=True).press("Enter")
        expect(page.locator("#turns")).to_contain_text("<img src=x onerror=alert(1)>")
        turn = 1
        while "over" not in (page.get_by_role("status").text_content() or ""):
            turn += 1
            page.get_by_role("button", name="Advice").click()
            expect(page.get_by_label("action", exact=True)).not_to_have_value("")
            page.get_by_role("button", name="Act", exact=True).click()
            expect(page.get_by_role("status")).to_contain_text(f"{turn} of 10 turns")
        expect(page.get_by_role("status")).to_contain_text("score 1; the episode is over")
        page.get_by_role("button", name="Save as demonstration").click()
        expect(page.get_by_role("status")).to_contain_text("demonstrations.jsonl")
        assert page.get_by_role("alert").text_content() == ""
    assert heard == []
    assert len((tmp_path / "played" / "demonstrations.jsonl").read_text().splitlines()) == 1


def test_a_grid_world_is_played_with_its_picture(page: Page, tmp_path: Path) -> None:
    with playing(tmp_path, "gymnasium", "--options", '{"id": "FrozenLake-v1"}') as url, listened(page) as heard:
        page.goto(url)
        page.get_by_role("button", name="Begin").click()
        picture = page.get_by_role("img", name="picture before the first turn")
        expect(picture).to_be_visible()
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("image => image.naturalWidth") > 100
    assert heard == []
