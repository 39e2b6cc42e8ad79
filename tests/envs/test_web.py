"""The browser itself, on pages of a server of our own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, Timer
from urllib.parse import urlsplit

import pytest
from agym.envs.errors import EnvFault
from agym.envs.protocol import Status
from agym.envs.web.actions import Malformed, Stop, parse
from agym.envs.web.browser import Surfer
from agym.envs.web.chromium import Browser, Room, _only
from agym.envs.web.session import EPOCH, ActionReply, Scene
from agym.envs.web.tree import TreeWindow
from agym.machine import inspect_machine

from .conftest import started

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(inspect_machine().browser is None, reason="there is no browser"),
]

PAGES = {
    "/": """<title>Hall</title><h1>Hall</h1>
      <a href="/kitchen">Kitchen</a> <a href="/slow">Slow</a> <a href="/kitchen" target="_blank">Beside</a>
      <a href="/pieces" target="_blank">In pieces</a> <a href="http://127.0.0.2:PORT/">Out</a>
      <form action="/said"><label>Name <input name="name"></label><button>Send</button></form>""",
    "/kitchen": "<title>Kitchen</title><p>A kitchen with a stove.</p>",
    "/pieces": f"<p>{'first ' * 400}</p><title>Whole</title><p>and last</p>",
    "/said": "<title>Said</title><p>Thanks.</p>",
    "/slow": "<title>Slow</title><div id=room>nothing yet</div><script src='/late.js'></script>",
    "/late.js": "fetch('/late.txt').then(a => a.text()).then(a => { room.textContent = a; })",
    "/late.txt": "here at last",
    "/form": """<title>Form</title>
      <input type=date aria-label=Day> <select aria-label=Size><option>S<option>M<option disabled>L</select>
      <textarea aria-label=Note>old</textarea> <input type=checkbox aria-label=Keep> <input readonly aria-label=Fixed>
      <div onclick="this.textContent = 'clicked ' + event.detail">box</div> <p>plain</p>""",
    "/long": "<title>Long</title>" + "".join(f"<p>paragraph {number}</p>" for number in range(200)),
    "/chance": "<title>Chance</title><p id=p></p><script>p.textContent = [Math.random(), Date.now()]</script>",
    "/timer": """<title>Timer</title><p id=p>0</p><script>
      let n = 0; setInterval(() => { p.textContent = ++n; }, 100)</script>""",
    "/dialog": "<title>Dialog</title><button onclick=\"alert('mind the step'); this.textContent='over'\">Go</button>",
    "/spy": """<title>Spy</title><p id=p>trying</p><script>
      const tries = ["http://127.0.0.2:PORT/secret", "http://localhost:PORT/secret", "https://example.com/"];
      Promise.allSettled(tries.map(url => fetch(url, {mode: "no-cors"}))).then(all => {
        p.textContent = all.map(each => each.status).join(" "); });
      new Image().src = tries[0]; navigator.sendBeacon(tries[1], "x");
      try { new WebSocket("ws://127.0.0.2:PORT/socket"); } catch (error) {}
      </script>""",
    "/spies": """<title>Spies</title><script>
      const socket = 'new WebSocket("ws://127.0.0.1:ELSEWHERE/").onerror = () => postMessage("shut")';
      window.heard = Promise.all([fetch("/away", {mode: "no-cors"}).catch(() => "shut"), new Promise(done => {
        new Worker(URL.createObjectURL(new Blob([socket]))).onmessage = event => done(event.data); })]);
      </script>""",
    "/endless": "<title>Endless</title><button onclick='for (;;) {}'>Go</button>",
}


class Site:
    """Serves the pages, and keeps what was asked of it."""

    def __init__(self) -> None:
        site = self
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None: ...

        # on all addresses of the loopback, so that what gets out of the sandbox would be seen
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._other = ThreadingHTTPServer(("127.0.0.2", self.port), Handler)
        self._elsewhere = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._servers = (self._server, self._other, self._elsewhere)
        self._threads = [Thread(target=each.serve_forever, daemon=True) for each in self._servers]
        for thread in self._threads:
            thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = urlsplit(request.path).path
        self.asked.append(f"{request.headers['Host']}{request.path}")
        if path == "/late.txt":
            time.sleep(0.4)
        elsewhere = str(self._elsewhere.server_address[1])
        body = PAGES.get(path, "").replace("PORT", str(self.port)).replace("ELSEWHERE", elsewhere).encode()
        request.send_response(200 if path in PAGES else 302 if path == "/away" else 404)
        request.send_header("Location", f"http://127.0.0.1:{elsewhere}/kitchen")
        kind = {"js": "text/javascript", "txt": "text/plain"}.get(path.rpartition(".")[2], "text/html")
        request.send_header("Content-Type", f"{kind}; charset=utf-8")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        for piece in body.partition(b"<title>Whole") if path == "/pieces" else (body,):
            request.wfile.write(piece)
            time.sleep(0.2 * (len(piece) < len(body)))

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.stop()


@pytest.fixture(scope="module")
def keeper(site: Site) -> Iterator[Surfer]:
    """Holds the browser open from test to test."""
    surfer = Surfer((site.host,))
    begin(surfer, site, "/")
    yield surfer
    surfer.close()


@pytest.fixture
def surfer(site: Site, keeper: Surfer) -> Iterator[Surfer]:
    surfer = Surfer((site.host,))
    yield surfer
    surfer.close()


def scene(site: Site, **chosen: object) -> Scene:
    given: dict[str, object] = {"hosts": (site.host,), "window": TreeWindow(width=600, height=400), **chosen}
    return Scene(**given)  # type: ignore[arg-type]


def begin(surfer: Surfer, site: Site, path: str, **chosen: object) -> str:
    surfer.begin(scene(site, **chosen), f"http://{site.host}{path}")
    return surfer.see()


def do(surfer: Surfer, text: str) -> ActionReply:
    action = parse(text)
    assert not isinstance(action, Malformed | Stop)
    return surfer.perform(action)


def on(page: str, line: str, action: str) -> str:
    """The action with the number of that element."""
    return action.replace("#", number(page, line))


def number(page: str, line: str) -> str:
    """That of the element whose line ends so."""
    return next(each.split("]")[0].strip().lstrip("[") for each in page.splitlines() if each.endswith(line))


# --- moving about --------------------------------------------------------------------------------------------------


def test_a_link_leads_to_its_page_and_back(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/")
    assert page.splitlines()[:3] == ["Page: Hall", f"Address: http://{site.host}/", "[1] heading 'Hall' level 1"]
    assert do(surfer, "go_back").status is Status.REFUSED
    assert do(surfer, on(page, "link 'Kitchen'", "click [#]")) == ActionReply()
    assert "A kitchen with a stove." in surfer.see()
    assert do(surfer, "go_back") == ActionReply()
    assert "Page: Hall" in surfer.see()
    assert do(surfer, "go_forward") == ActionReply()
    assert "Page: Kitchen" in surfer.see()


def test_what_a_page_fetches_late_is_waited_for(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/")
    do(surfer, on(page, "link 'Slow'", "click [#]"))
    assert "here at last" in surfer.see()


def test_a_form_is_filled_in_and_sent(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/")
    do(surfer, on(page, "textbox 'Name'", "type [#] [Ida B. & co] [1]"))
    assert "Thanks." in surfer.see()
    assert f"{site.host}/said?name=Ida+B.+%26+co" in site.asked


def test_a_page_that_opens_alongside_is_a_tab_of_its_own(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/")
    do(surfer, on(page, "link 'Beside'", "click [#]"))
    assert surfer.see().splitlines()[:2] == ["Tab 0: Hall", "Tab 1 (here): Kitchen"]
    do(surfer, "tab_focus [0]")
    assert "Tab 0 (here): Hall" in surfer.see()
    assert do(surfer, "tab_focus [7]").status is Status.REFUSED
    do(surfer, "close_tab")
    assert "Page: Kitchen" in surfer.see()
    assert do(surfer, "close_tab").status is Status.REFUSED
    do(surfer, "new_tab")
    do(surfer, f"goto [http://{site.host}/kitchen]")
    assert "Tab 1 (here): Kitchen" in surfer.see()


def test_a_page_that_opens_alongside_is_waited_for(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/")
    do(surfer, on(page, "link 'In pieces'", "click [#]"))
    assert surfer.see().splitlines()[1] == "Tab 1 (here): Whole"


def test_numbers_stay_with_their_elements_until_the_page_is_left(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/form")
    box = number(page, "checkbox 'Keep'")
    do(surfer, f"click [{box}]")
    assert f"[{box}] checkbox 'Keep' checked focused" in surfer.see()
    do(surfer, f"goto [http://{site.host}/kitchen]")
    assert "[1] text 'A kitchen with a stove.'" in surfer.see()
    assert do(surfer, "click [99]") == ActionReply("There is no element [99] now.", Status.REFUSED)


# --- acting --------------------------------------------------------------------------------------------------------


def test_typing_replaces_and_refuses_what_takes_no_text(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/form")
    note = number(page, "textbox 'Note' multiline value 'old'")
    do(surfer, f"type [{note}] [new [one]]")
    assert "value 'new [one]'" in surfer.see()
    do(surfer, f"type [{note}] []")
    assert "value" not in next(line for line in surfer.see().splitlines() if "'Note'" in line)
    assert do(surfer, on(page, "textbox 'Fixed'", "type [#] [x]")).status is Status.REFUSED
    assert do(surfer, on(page, "text 'plain'", "type [#] [x]")).status is Status.REFUSED


def test_a_date_is_typed_in_one_way_and_others_are_answered_with_it(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/form")
    day = number(page, "date 'Day'")
    assert "2024-03-31" in do(surfer, f"type [{day}] [31.3.24]").text
    assert do(surfer, f"type [{day}] [2024-03-31]") == ActionReply()
    assert surfer.ask("() => document.querySelector('input').value") == "2024-03-31"


def test_an_option_is_chosen_by_its_name(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/form")
    size = number(page, "combobox 'Size' value 'S' options 'S', 'M', 'L'")
    assert do(surfer, f"select [{size}] [m]") == ActionReply()
    assert "value 'M'" in surfer.see()
    assert do(surfer, f"select [{size}] [XL]").text == f"[{size}] has no option 'XL'."
    assert do(surfer, f"select [{size}] [L]").status is Status.REFUSED
    assert do(surfer, on(page, "text 'plain'", "select [#] [S]")).status is Status.REFUSED


def test_scrolling_shows_what_was_below_until_there_is_no_more(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/long")
    assert "paragraph 0'" in page
    assert page.endswith("(there is more below)")
    assert do(surfer, "scroll [up]").status is Status.REFUSED
    do(surfer, "scroll [down]")
    assert "paragraph 0'" not in surfer.see()
    assert surfer.see().endswith("(there is more above and below)")
    while do(surfer, "scroll [down]").status is Status.OK:
        pass
    assert "paragraph 199'" in surfer.see()


def test_what_is_in_the_window_but_had_no_room_comes_before_what_is_below_it(surfer: Surfer, site: Site) -> None:
    def lines(page: str) -> list[str]:
        return page.splitlines()[2:-1]  # without title, address and the note at the end

    window = lines(begin(surfer, site, "/long"))
    pieces = [begin(surfer, site, "/long", tokens=60)]
    while sum(len(lines(piece)) for piece in pieces) < len(window):
        do(surfer, "scroll [down]")
        pieces.append(surfer.see())
        assert pieces[-1].endswith("(there is more above and below)")
    assert [line for piece in pieces for line in lines(piece)] == window
    assert len(pieces) > 2
    for before in reversed(pieces[:-1]):
        do(surfer, "scroll [up]")
        assert surfer.see() == before
    while "paragraph 199'" not in surfer.see():
        assert do(surfer, "scroll [down]").status is Status.OK


def test_keys_points_and_the_mouse_reach_the_page(surfer: Surfer, site: Site) -> None:
    page = begin(surfer, site, "/form")
    box = number(page, "text 'box'")
    do(surfer, f"hover [{box}]")
    do(surfer, f"click [{box}]")
    assert "clicked 1" in surfer.see()
    do(surfer, on(page, "checkbox 'Keep'", "click [#]"))
    do(surfer, "press [Space]")
    assert "checkbox 'Keep' focused" in surfer.see()
    assert do(surfer, "click [900,10]").status is Status.REFUSED
    assert do(surfer, "drag [5,5] [50,5]") == ActionReply()


def test_a_dialog_is_agreed_to_and_told(surfer: Surfer, site: Site) -> None:
    begin(surfer, site, "/dialog")
    do(surfer, "click [1]")
    seen = surfer.see()
    assert seen.startswith("A dialog said, and was agreed to: mind the step\n")
    assert seen.endswith("button 'over' focused")
    assert "mind the step" not in surfer.see()


# --- the same each time --------------------------------------------------------------------------------------------


def test_chance_comes_from_the_seed_and_the_clock_stands_still(surfer: Surfer, site: Site) -> None:
    first = begin(surfer, site, "/chance", seed=5, tick_ms=500)
    assert begin(surfer, site, "/chance", seed=5, tick_ms=500) == first
    assert begin(surfer, site, "/chance", seed=6, tick_ms=500) != first
    assert f",{EPOCH + 1}" in first


def test_time_passes_only_with_actions(surfer: Surfer, site: Site) -> None:
    first = begin(surfer, site, "/timer", tick_ms=500)
    time.sleep(0.5)
    assert surfer.see() == first
    assert "text '5'" in first
    do(surfer, "wait")
    assert "text '10'" in surfer.see()


def test_neighbours_in_one_browser_see_nothing_of_each_other(site: Site, keeper: Surfer) -> None:
    def played(_: int) -> tuple[str, ...]:
        surfer, seen = Surfer((site.host,)), []
        try:
            page = begin(surfer, site, "/form", tick_ms=500)
            for action in (on(page, "'old'", "type [#] [mine]"), "scroll [down]", "press [Tab]"):
                do(surfer, action)
                seen.append(surfer.see())
        finally:
            surfer.close()
        return tuple(seen)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(played, range(16)))) == 1


# --- nothing gets out ----------------------------------------------------------------------------------------------


def test_no_other_host_is_reached(surfer: Surfer, site: Site) -> None:
    site.asked.clear()
    assert "rejected rejected rejected" in begin(surfer, site, "/spy")
    page = begin(surfer, site, "/")
    do(surfer, on(page, "link 'Out'", "click [#]"))
    for url in (
        f"http://127.0.0.2:{site.port}/",
        f"http://localhost:{site.port}/",
        "file:///etc/passwd",
        "chrome://gpu",
    ):
        assert do(surfer, f"goto [{url}]").status is Status.REFUSED
    assert {asked.partition("/")[0] for asked in site.asked} == {site.host}
    assert "root:" not in surfer.see()


def test_no_other_port_of_the_same_machine_is_reached(surfer: Surfer, site: Site) -> None:
    """Which is where redirects lead, and sockets of workers, neither of which the driver asks about."""
    site.asked.clear()
    begin(surfer, site, "/spies")
    assert surfer.ask("heard") == ["shut", "shut"]
    assert do(surfer, f"goto [http://{site.host}/away]").status is Status.REFUSED
    assert {asked.partition("/")[0] for asked in site.asked} == {site.host}


def test_a_host_without_a_port_is_at_the_usual_ones_only() -> None:
    assert _only(("127.0.0.1:7770", "a.test"), "") == (
        "MAP 127.0.0.1:7770 127.0.0.1:7770, MAP a.test:80 a.test:80, MAP a.test:443 a.test:443, MAP * ~NOTFOUND"
    )
    assert _only(("a.test", "b.test"), "127.0.0.1:9") == (
        "MAP a.test 127.0.0.1:9, MAP b.test 127.0.0.1:9, MAP * ~NOTFOUND"
    )


def test_files_of_a_folder_are_served_and_none_next_to_it(surfer: Surfer, site: Site, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.html").write_text("<p>Grüße</p>", encoding="utf-8")
    (tmp_path / "secret.html").write_text("<p>secret</p>", encoding="utf-8")
    here = scene(site, hosts=(), folder=("pages.test", pages))
    surfer.begin(here, "http://pages.test/a.html")
    assert "text 'Grüße'" in surfer.see()
    for path in ("..%2fsecret.html", "%2e%2e/secret.html", "/etc/passwd"):
        do(surfer, f"goto [http://pages.test/{path}]")
        assert "text 'There is no such page.'" in surfer.see()


# --- trouble -------------------------------------------------------------------------------------------------------


def children(pid: int) -> set[int]:
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.add(int(file.parent.name))
    return found


def below(pid: int) -> set[int]:
    near = children(pid)
    return near.union(*(below(each) for each in near))


def test_a_browser_that_died_is_a_fault_and_the_next_visit_has_another(site: Site) -> None:
    room = Room(("127.0.0.1", "nowhere.test"))
    before = below(os.getpid())
    browser = room.enter()
    (driver,) = children(os.getpid()) - before
    (chromium,) = children(driver)
    os.kill(chromium, signal.SIGKILL)
    for _ in range(100):
        if not browser.alive:
            break
        time.sleep(0.1)
    with pytest.raises(EnvFault, match="gone"):
        browser.process  # noqa: B018 - asking is what is tested
    other = room.enter()
    assert other is not browser
    assert other.alive
    room.leave(browser)
    room.leave(other)
    assert below(os.getpid()) <= before


def test_a_driver_that_died_is_a_fault_and_then_the_next_visit_has_another(site: Site) -> None:
    before = below(os.getpid())
    surfers = [Surfer((site.host, "elsewhere.test")) for _ in range(3)]
    begin(surfers[0], site, "/")
    (driver,) = children(os.getpid()) - before
    os.kill(driver, signal.SIGKILL)
    with pytest.raises(EnvFault):
        begin(surfers[1], site, "/")
    # a visit that still holds the lost one keeps no other from coming in
    assert "Hall" in begin(surfers[2], site, "/")
    assert "Hall" in begin(surfers[1], site, "/")
    for surfer in surfers:
        surfer.close()
    assert below(os.getpid()) <= before


def test_an_end_leaves_the_page_and_a_browser_that_is_gone(site: Site) -> None:
    surfer = Surfer((site.host, "elsewhere.test"))
    begin(surfer, site, "/")
    browser = surfer._browser
    assert browser is not None
    assert len(browser.process.contexts) == 1
    surfer.end()
    assert browser.process.contexts == []
    assert surfer._browser is browser
    browser.stop()
    surfer.end()
    assert surfer._browser is None


def test_what_waits_for_a_browser_that_dies_fails_at_once() -> None:
    room = Room(("nowhere.test",))
    before = below(os.getpid())
    browser = room.enter()
    (driver,) = children(os.getpid()) - before
    (chromium,) = children(driver)
    Timer(0.3, os.kill, (chromium, signal.SIGKILL)).start()
    with pytest.raises(EnvFault, match=r"the browser (failed|is gone)"):
        browser.run(pages(browser), 120)
    room.leave(browser)
    assert below(os.getpid()) <= before


async def pages(browser: Browser) -> None:
    """One after the other, so that whatever is being done about one is interrupted."""
    while True:
        page = await browser.process.new_page()
        await page.evaluate("document.title")
        await page.close()


def test_a_page_that_crashes_is_a_fault_and_the_next_visit_goes_well(surfer: Surfer, site: Site) -> None:
    begin(surfer, site, "/")
    surfer.run(crash(surfer))
    # whether it was asked before the crash or after: it is not waited for until a deadline
    for _ in range(2):
        with pytest.raises(EnvFault, match="a page crashed"):
            do(surfer, "wait")
    assert "Hall" in begin(surfer, site, "/")


async def crash(surfer: Surfer) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the driver calls it
        await surfer.visit.tab.leaf.goto("chrome://crash", timeout=5000)


BROWSING = """
from agym.envs.web.chromium import Browser
browser = Browser(())
print("up", flush=True)
input()
browser.stop()
browser.stop()
print("down", flush=True)
input()
"""


@contextmanager
def browsing(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a browser, with a folder for temporary files of its own."""
    with started(BROWSING, temporary) as process:
        assert heard(process) == "up\n"
        yield process


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_process_around_it_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    with browsing(tmp_path) as process:
        started = below(process.pid)
        assert len(started) > 2
        assert list(tmp_path.iterdir())
        process.send_signal(number)
    for _ in range(300):
        left = {pid for pid in started if Path(f"/proc/{pid}/cmdline").exists()}
        if not left and not list(tmp_path.iterdir()):
            return
        time.sleep(0.1)
    pytest.fail(f"{left} and {list(tmp_path.iterdir())} are left")


def test_nothing_is_left_of_a_browser_that_is_stopped(tmp_path: Path) -> None:
    with browsing(tmp_path) as process:
        assert below(process.pid)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert heard(process) == "down\n"
        assert not below(process.pid)
        assert not list(tmp_path.iterdir())
        process.stdin.write("\n")
