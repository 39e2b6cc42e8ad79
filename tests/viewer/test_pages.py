"""The viewer's pages in a real browser: in both themes, at the narrowest and the widest, by keyboard, under attack."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import quote

import pytest
from agym.envs.web import BROWSERS
from agym.runtime.storage.episode_reader import EPISODES
from agym.viewer.server import STATIC
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from .served import append_lines, metrics_row
from .viewed import EVIL, LONG, PLANTED_STEP, PLANTED_TASK, STEPS, played, write_viewed

pytestmark = pytest.mark.heavy

AXE = STATIC.parent / "node_modules" / "axe-core" / "axe.min.js"
WAIT_S = 60
PAGES = {
    "Runs": "#/",
    "house": "#/runs/house",
    "Episodes of house": "#/runs/house/episodes?success=false",
    "Episode train-450-7": "#/runs/house/episodes/train-450-7?turn=2",
    "house / door-7": "#/runs/house/task?environment=house&task=door-7",
    "house / door-6": "#/runs/house/turns?id=train-450-6&id=train-450-7",
    "Compare two runs": "#/compare?a=house&b=door",
    "Curves of 2 runs": "#/curves?run=house&run=door&key=train/loss",
    "This cannot be shown": "#/nowhere",
}
"""Addresses by their first headings."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewed") / "runs"
    write_viewed(folder)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The address of a server, which is started and ended once."""
    command = [sys.executable, "-P", "-m", "agym", "view", str(folder), "--no-browser"]
    environ = {**os.environ, **{f"XDG_{kind}_HOME": str(folder.parent / kind) for kind in ("CACHE", "DATA")}}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(WAIT_S)
            finally:
                process.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(which, BROWSERS)), None)
    assert program is not None, "no Chromium: apt-get install chromium-headless-shell"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--disable-gpu", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[Open]:
    """Opens addresses; at the end no page may have written an error to its console."""
    contexts, said = list[BrowserContext](), list[str]()

    def open_(address: str, *, width: int = 1280, is_clean: bool = True, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(WAIT_S * 1000)
        contexts.append(context)
        page = context.new_page()
        if is_clean:
            page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(f"a dialog: {dialog.message}"))
        page.goto(url + address)
        wait_shown(page, address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []


def wait_shown(page: Page, address: str) -> None:
    page.wait_for_selector(f'html[data-shown="{address}"]', state="attached")


def visit(page: Page, address: str) -> None:
    page.evaluate("address => { location.hash = address }", address)
    wait_shown(page, address)


def violations(page: Page) -> list[str]:
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes']]}" for each in found["violations"]]


def heading(page: Page) -> str:
    return page.locator("h1").inner_text()


@pytest.mark.parametrize("width", [375, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_can_be_read_by_all(open_page: Open, width: int, scheme: str) -> None:
    page = open_page("#/", width=width, color_scheme=scheme)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for title, address in PAGES.items():
        visit(page, address)
        assert heading(page) == title
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), title
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "light dark"


def test_the_theme_can_be_chosen_and_is_kept(open_page: Open) -> None:
    page = open_page("#/", color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_who_wishes_no_motion_has_none(open_page: Open) -> None:
    page = open_page("#/runs/house", reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("document.getAnimations().length") == 0


def test_all_is_reached_by_keyboard_with_a_focus_that_is_seen(open_page: Open) -> None:
    page = open_page("#/")
    press = page.keyboard.press
    press("?")
    expect(page.get_by_role("dialog")).to_contain_text("compare the two runs that are ticked")
    press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    tab_to(page, "house")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Enter")
    wait_shown(page, "#/runs/house")
    press("e")
    wait_shown(page, "#/runs/house/episodes")
    press("/")
    page.keyboard.type("kick")
    expect(page.get_by_role("status").filter(has_text="of")).to_have_text("1 to 50 of 101")
    press("Escape")
    page.locator("a.open:focus").wait_for()
    press("j")
    assert page.evaluate("document.activeElement.textContent") == f"train-{STEPS - 1}-7"
    press("Enter")
    expect(page.locator("h1")).to_have_text(f"Episode train-{STEPS - 1}-7")
    press("ArrowRight")
    expect(page.locator("output.place")).to_have_text("turn 2 of 2")
    press("[")
    expect(page.locator("h1")).to_have_text(f"Episode train-{STEPS - 1}-6")
    press("o")
    expect(page.locator("h1")).to_have_text("house / door-6")


def tab_to(page: Page, text: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == text:
            return
    raise AssertionError(f"Tab does not lead to '{text}'")


def test_two_runs_are_chosen_and_compared_by_keyboard(open_page: Open) -> None:
    page = open_page("#/")
    for name in ("house", "door"):
        page.get_by_role("checkbox", name=f"compare {name}").focus()
        page.keyboard.press(" ")
    page.keyboard.press("c")
    wait_shown(page, "#/compare?a=house&b=door")
    expect(page.locator("pre.code")).to_contain_text("+name: door")
    expect(page.get_by_role("table", name="Packages of different versions")).to_contain_text("2.13")


def test_runs_have_their_curves_in_one_chart(open_page: Open) -> None:
    page = open_page("#/")
    for name in ("house", "door"):
        page.get_by_role("checkbox", name=f"compare {name}").check()
    page.keyboard.press("v")
    wait_shown(page, "#/curves?run=house&run=door")
    chart = page.get_by_role("slider", name="rollout/success by step")
    chart.focus()
    page.keyboard.press("End")
    assert re.search(rf"step {STEPS}: house {STEPS // 10} .*, door 1$", str(chart.get_attribute("aria-valuetext")))
    page.get_by_label("Metric").fill("timing_s/rollout")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="timing_s/rollout")).to_be_visible()
    assert "key=timing_s" in page.url


def test_a_point_of_a_curve_leads_to_the_episodes_of_its_step(open_page: Open) -> None:
    page = open_page("#/runs/house")
    chart = page.get_by_role("slider", name="Success by step")
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(re.compile(r"step_from=(\d+)&step_to=\1$"))
    page.go_back()
    wait_shown(page, "#/runs/house")
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "step 2: rollout/success 0.2" in str(chart.get_attribute("aria-valuetext"))
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("step_from=2&step_to=2$"))
    expect(page.locator("p.count")).to_have_text("1 to 10 of 10")


def test_each_chart_has_a_table_and_a_csv(open_page: Open, url: str) -> None:
    page = open_page("#/runs/house")
    charts = page.locator("figure.chart")
    assert charts.count() == 8
    recorded = [text for text in page.locator(".readout").all_inner_texts() if text != "not recorded"]
    assert 0 < len(recorded) < 8
    assert page.locator("figure.chart canvas").count() == len(recorded)
    loss = charts.filter(has=page.get_by_role("heading", name="Loss"))
    loss.get_by_text("Table of Loss").click()
    expect(loss.get_by_role("row")).to_have_count(STEPS + 1)
    address = loss.get_by_role("link", name="CSV").get_attribute("href")
    lines = page.request.get(f"{url}{address}").text().splitlines()
    assert (lines[0], len(lines)) == ("total_step,stage,time,train/loss", STEPS + 1)


def test_without_uplot_there_are_tables_that_say_so(open_page: Open, browser: Browser, url: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/uPlot.iife.min.js", lambda route: route.abort())
    page.goto(f"{url}#/runs/house")
    page.get_by_text("Charts need uPlot").first.wait_for(timeout=WAIT_S * 1000)
    expect(page.get_by_role("table", name="Loss")).to_contain_text("train/loss")
    context.close()


def test_tokens_are_shaded_by_more_than_colour_and_tell_what_is_known(open_page: Open) -> None:
    page = open_page("#/runs/house/episodes/train-450-7?turn=2")
    tokens = page.get_by_role("listbox", name="Tokens of turn 2").get_by_role("option")
    assert tokens.all_inner_texts() == ["kick", " door", "."]
    for choice in ("log-prob", "advantage", "ratio", "mask"):
        page.get_by_role("radio", name=choice).check()
        styles = tokens.evaluate_all("all => all.map(each => getComputedStyle(each).borderBottom)")
        assert choice == "mask" or len(set(styles)) > 1, choice
    assert "color=mask" in page.url
    tokens.first.focus()
    page.keyboard.press("ArrowRight")
    facts = page.locator(".token-facts")
    for fact in ("2 of 3", "4", '" door"', "-1.25", "-1.6", "-0.5", "449", "yes"):
        expect(facts).to_contain_text(fact)
    tokens.last.hover()
    expect(facts).to_contain_text("3 of 3")


def test_filters_stand_in_the_address_and_a_wrong_expression_is_explained_in_place(open_page: Open) -> None:
    page = open_page("#/runs/house/episodes", is_clean=False)
    page.get_by_label("Where").fill("turns >")
    expect(page.locator("#where-problem")).to_contain_text("turns >\n")
    page.get_by_label("Where").fill(f"total_step >= {STEPS - 1} and turns > 1")
    expect(page.locator("p.count")).to_have_text("1 to 20 of 20")
    expect(page.locator("#where-problem")).to_be_empty()
    page.get_by_label("Success").select_option("false")
    expect(page.locator("p.count")).to_have_text("1 to 2 of 2")
    page.reload()
    expect(page.locator("p.count")).to_have_text("1 to 2 of 2")
    assert page.get_by_label("Where").input_value() == f"total_step >= {STEPS - 1} and turns > 1"


def test_an_episode_is_tagged_found_by_its_tag_and_given_as_sft_data(open_page: Open, url: str) -> None:
    address = "#/runs/house/episodes/train-450-3"
    page = open_page(address)
    page.keyboard.press("+")
    page.keyboard.type("good one")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="take away tag good one").wait_for()
    visit(page, "#/runs/house/episodes")
    page.get_by_text("Tagged", exact=True).click()
    page.get_by_role("listitem").get_by_role("link", name="train-450-3").wait_for()
    exported = page.get_by_role("link", name="SFT data of 1").get_attribute("href")
    (line,) = page.request.get(f"{url}{exported}").text().splitlines()
    assert json.loads(line)["task"] == "door-3"
    visit(page, address)
    page.get_by_role("button", name="take away tag good one").click()
    expect(page.get_by_role("button", name="take away tag good one")).to_have_count(0)


def test_a_replay_that_cannot_be_says_why_on_its_page(open_page: Open) -> None:
    page = open_page("#/runs/house/episodes/train-450-3", is_clean=False)
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("output.said").first).to_contain_text("house")


def test_pages_of_episodes_go_on_and_back(open_page: Open) -> None:
    page = open_page("#/runs/house/episodes")
    expect(page.locator("p.count")).to_have_text("1 to 50 of 5,000")
    page.keyboard.press("n")
    expect(page.locator("p.count")).to_have_text("51 to 100 of 5,000")
    assert "offset=50" in page.url
    page.keyboard.press("p")
    expect(page.locator("p.count")).to_have_text("1 to 50 of 5,000")


def test_a_planted_failure_is_found_by_the_documented_path(open_page: Open) -> None:
    page = open_page("#/")
    page.get_by_role("link", name="house").click()
    page.get_by_role("main").get_by_role("link", name="Episodes").click()
    wait_shown(page, "#/runs/house/episodes")
    page.get_by_label("Success").select_option("false")
    page.get_by_label("Step from").fill(str(PLANTED_STEP))
    expect(page.locator("p.count")).to_have_text(f"1 to 50 of {STEPS - PLANTED_STEP + 1}")
    page.get_by_role("link", name=f"house / {PLANTED_TASK}").first.click()
    page.get_by_text(f"Won at step {PLANTED_STEP - 1}, lost at step {PLANTED_STEP}").wait_for()
    differing = page.locator("tr.differs")
    assert "first difference" in differing.inner_text()
    assert [" ".join(text.split()) for text in differing.locator("td").all_inner_texts()] == [
        "open door It is open. reward 1",
        "differs: kick door It does not move.",
    ]


def test_an_episode_that_is_appended_is_seen(open_page: Open, folder: Path) -> None:
    page = open_page("#/runs/door/episodes")
    before = page.locator("p.count").inner_text()
    deadline = time.monotonic() + WAIT_S
    append_lines(folder / "door" / EPISODES / "step-000011.jsonl", played(11, 1))
    append_lines(folder / "door" / "metrics.jsonl", metrics_row(11))
    page.get_by_role("link", name="train-11-1").wait_for()
    assert page.locator("p.count").inner_text() != before
    assert time.monotonic() < deadline


def test_an_episode_that_is_appended_while_its_page_loads_is_seen(open_page: Open, folder: Path) -> None:
    page = open_page("#/")

    def answer(route: Route) -> None:
        answered = route.fetch()
        append_lines(folder / "door" / EPISODES / "step-000012.jsonl", played(12, 1))
        route.fulfill(response=answered)

    page.route("**/runs/door/episodes?*", answer, times=1)
    visit(page, "#/runs/door/episodes")
    page.get_by_role("link", name="train-12-1").wait_for()


def test_an_episode_that_is_appended_waits_until_the_focus_leaves_the_list(open_page: Open, folder: Path) -> None:
    page = open_page("#/runs/door/episodes")
    deadline = time.monotonic() + WAIT_S
    versions = [next_version(page)]
    page.keyboard.press("j")
    row = page.locator("tbody a.open").first
    expect(row).to_be_focused()
    append_lines(folder / "door" / EPISODES / "step-000013.jsonl", played(13, 1))
    append_lines(folder / "door" / "metrics.jsonl", metrics_row(13))
    # the page has seen every change, of the files and of the index that reads them
    while len(set(versions[-3:])) > 1 or versions[-1] == versions[0]:
        assert time.monotonic() < deadline
        versions.append(next_version(page))
    expect(row).to_be_focused()
    expect(page.get_by_role("link", name="train-13-1")).to_have_count(0)
    page.keyboard.press("/")
    page.get_by_role("link", name="train-13-1").wait_for()


def next_version(page: Page) -> object:
    with page.expect_response("**/changes") as answered:
        pass
    return answered.value.json()["version"]


def test_the_first_view_is_small(open_page: Open, browser: Browser, url: str) -> None:
    context = browser.new_context()
    sizes = list[int]()
    page = context.new_page()
    page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
    page.goto(url)
    wait_shown(page, "#/")
    assert 0 < sum(sizes) < 200_000
    context.close()


@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_runs_and_nothing_is_lost_of_hostile_episodes(open_page: Open, width: int) -> None:
    page = open_page("#/", width=width)
    evil = quote(EVIL, safe="")
    for address in (
        "#/runs/hostile", "#/runs/hostile/episodes", "#/runs/hostile/episodes/evil",
        "#/runs/hostile/episodes/huge?all=1",
        f"#/runs/hostile/task?environment={evil}&task={evil}", "#/runs/hostile/turns?id=evil&id=huge",
    ):  # fmt: skip
        page.evaluate("address => { location.hash = address }", address)
        page.wait_for_selector("main h1, main .problem")
        page.get_by_role("main").get_by_text(re.compile("window.ran = 1|long turn|open door|hostile")).first.wait_for()
        assert page.evaluate("window.ran === undefined")
        assert page.locator("main script, main img, main iframe, main svg svg").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
    assert not re.search("[\u202e\u202c\x1b\x00]", page.locator("main").inner_text())


def test_hostile_text_is_shown_as_it_was_written(open_page: Open) -> None:
    page = open_page("#/runs/hostile/episodes/evil")
    shown = page.locator(".answer").inner_text()
    for part in (
        "<script>window.ran = 1</script></script>",
        "<svg onload=",
        "\\u202egnirts",
        "\\u001b[31mred",
        "\\u0000",
    ):
        assert part in shown
    visit(page, "#/runs/hostile/episodes/huge")
    page.locator(".answer").get_by_role("button", name="show all 1,048,580 characters").click()
    assert len(str(page.locator(".answer .text").text_content())) == len(LONG)
