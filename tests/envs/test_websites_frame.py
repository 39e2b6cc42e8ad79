from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from urllib.parse import urlencode, urlsplit

import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.clients.supervise import ServeCommand
from agym.envs.conformance import Subject, run_checks
from agym.envs.errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Deadlines, Json, Status
from agym.envs.registry import factory
from agym.envs.web.tree import estimate_tokens
from agym.envs.websites import Websites, create
from agym.envs.websites.catalog import (
    HOSTS,
    SITES,
    describe_tasks,
    list_drawn,
    list_tasks,
    list_templates,
)
from agym.envs.websites.checks import NOT_POSSIBLE, Databases, format_truth, is_at, is_right_answer
from agym.envs.websites.env import _HOSTING
from agym.envs.websites.framework.site import (
    Host,
    PageNotFound,
    PageRequest,
    Paging,
    Redirect,
    SitePage,
    WebSite,
    on_get,
    on_post,
    read_whole,
)
from agym.envs.websites.hosting import HEADER, Hosting, SiteWorld, open_copy
from agym.envs.websites.tasks import PARTS, SEVERAL
from agym.envs.websites.texts import ENDED
from agym.machine import inspect_machine

# --- answers and addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("Ann Lee", "ann lee"),
        (' "Ann  Lee" ', "Ann Lee"),
        ("12", 12),
        ("$1,204.50", 1204.5),
        ("-3", -3),
        ("12.0", 12),
        ("a, B;c", frozenset({"a", "b", "c"})),
        ("one\ntwo", ("two", "one")),
        ("n/a", NOT_POSSIBLE),
        ("", frozenset()),
    ],
)
def test_a_right_answer_is_right_however_it_is_written(answer: str, truth: str | int) -> None:
    assert is_right_answer(answer, truth)


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("Ann", "Ann Lee"),
        ("", "Ann"),
        ("12 or 13", 12),
        ("121", 12),
        ("1,2", 12),
        ("", 0),
        ("a, b", frozenset({"a"})),
        ("a", ("a", "a")),
        ("12", NOT_POSSIBLE),
    ],
)
def test_a_wrong_answer_is_wrong(answer: str, truth: str | int) -> None:
    assert not is_right_answer(answer, truth)


@pytest.mark.parametrize("truth", ["Ann Lee", 12, 12.5, frozenset({"a", "b"}), NOT_POSSIBLE])
def test_what_an_expert_says_is_right(truth: str | float) -> None:
    assert is_right_answer(format_truth(truth), truth)


@pytest.mark.parametrize(
    ("url", "wanted", "right"),
    [
        ("http://shop.test/a?y=2&x=1", "http://shop.test/a?x=1&y=2", True),
        ("http://shop.test/a?x=1&y=2", "http://shop.test/a?y=2", False),
        ("http://shop.test/a?y=2", "http://shop.test/a?x=1&y=2", False),
        ("http://shop.test/a?y=2&x=&page=1#end", "http://shop.test/a?y=2", True),
        ("http://shop.test/a?y=2&page=9", "http://shop.test/a?y=2", False),
        ("http://shop.test/a?free=1&y=2", "http://shop.test/a?y=2", True),
        ("http://shop.test/a/", "http://shop.test/a", False),
        ("http://shop.test/a?x=1", "http://shop.test/a?x=2", False),
        ("http://shop.test/a", "http://forum.test/a", False),
        ("http://shop.test/ab", "http://shop.test/a", False),
        # the site takes the last
        ("http://shop.test/a?x=1&x=2", "http://shop.test/a?x=1", False),
        ("http://shop.test/a?x=1&x=2", "http://shop.test/a?x=2", True),
        ("http://shop.test/a?x=1&x=", "http://shop.test/a?x=1", False),
    ],
)
def test_an_address_is_the_one_wanted(url: str, wanted: str, right: bool) -> None:
    assert is_at(url, wanted, frozenset(("free",))) is right


# --- a site --------------------------------------------------------------------------------------------------------


def test_a_number_out_of_an_address_is_small_or_none() -> None:
    assert [read_whole(text, 7) for text in ("12", "-1", "1.5", "", "9" * 30, "²", "٣")] == [12, 7, 7, 7, 7, 7, 7]


@pytest.mark.parametrize(("asked", "number"), [("", 1), ("0", 1), ("2", 2), ("99", 3), ("x", 1)])
def test_a_page_of_a_list_is_one_that_is_there(asked: str, number: int) -> None:
    request = PageRequest(host="a.test", path="/", query={"page": asked, "q": "red shoes"})
    paging = Paging.of(request, size=10, total=25)
    assert (paging.number, paging.last, paging.offset) == (number, 3, 10 * (number - 1))
    assert request.here(page=paging.number).startswith("/?page=")


def test_an_empty_list_has_one_page() -> None:
    paging = Paging.of(PageRequest(host="a.test", path="/"), size=10, total=0)
    assert (paging.number, paging.last) == (1, 1)


def test_a_pattern_takes_one_part_or_all_the_rest() -> None:
    def matched(pattern: str, path: str) -> object:
        return on_get(pattern, _note).match(PageRequest(host="a.test", path=path))

    assert matched("/p/<name>.html", "/p/x.html") == {"name": "x"}
    assert matched("/p/<name>.html", "/p/xhtml") is None
    assert matched("/p/<name>", "/p/a/b") is None
    assert matched("/<who>/at/<path...>", "/me/at/a/b") == {"who": "me", "path": "a/b"}


def _note(db, request: PageRequest, named) -> SitePage | Redirect:  # type: ignore[no-untyped-def]
    """Writes down what was sent, and shows all that was written."""
    if request.query.get("text") == "wrong":
        db.execute("INSERT INTO notes VALUES ('half')")
        raise PageNotFound("no such note")
    if "text" in request.form:
        db.execute("INSERT INTO notes VALUES (?)", (request.form["text"],))
        return Redirect(to="/seen", user=request.form.get("user", request.user))
    return SitePage(template="notes.html", values={"notes": [text for (text,) in db.execute("SELECT text FROM notes")]})


@pytest.fixture
def notes(tmp_path: Path) -> WebSite:
    """A site with one table, under two names."""
    page = "{{ user }}@{{ host.title }}:{% for note in notes %}({{ note }}){% endfor %}"
    (tmp_path / "notes.html").write_text(page, encoding="utf-8")
    (tmp_path / "error.html").write_text("{{ status }} {{ message }}", encoding="utf-8")
    routes = (on_get("/seen", _note), on_post("/write", _note))
    return WebSite(
        name="notes",
        hosts={
            "a.test": Host(title="A", user="ann", routes=routes),
            "b.test": Host(title="B", user=None, routes=routes),
        },
        schema="CREATE TABLE notes(text TEXT); CREATE TABLE passing(text TEXT)",
        fill=lambda db, rng: None,
        templates=tmp_path,
        passing=frozenset({"passing"}),
    )


def written(world: SiteWorld, text: str, host: str = "a.test", **more: str) -> None:
    assert world.answer("POST", host, "/write", "", urlencode({"text": text, **more})).status == 303


def test_worlds_of_one_site_share_nothing(notes: WebSite) -> None:
    first, second = SiteWorld((notes,)), SiteWorld((notes,))
    written(first, "mine", user="bob")
    assert first.answer("GET", "a.test", "/seen", "", "").html == "bob@A:(mine)"
    assert second.answer("GET", "a.test", "/seen", "", "").html == "ann@A:"
    assert list(first.outcome().changes) == ["notes.notes"]
    assert second.outcome().changes == {}


def test_names_of_one_site_share_data_but_not_who_is_logged_in(notes: WebSite) -> None:
    world = SiteWorld((notes,))
    written(world, "here", host="b.test")
    assert world.answer("GET", "a.test", "/seen", "", "").html == "ann@A:(here)"
    assert world.answer("GET", "b.test", "/seen", "", "").html == "None@B:(here)"


def test_a_request_that_went_wrong_has_changed_nothing(notes: WebSite) -> None:
    world = SiteWorld((notes,))
    reply = world.answer("GET", "a.test", "/seen", "text=wrong", "")
    assert (reply.status, reply.html) == (404, "404 no such note")
    assert world.outcome().changes == {}


def test_what_is_sent_is_cleaned_cut_and_escaped(notes: WebSite) -> None:
    world = SiteWorld((notes,))
    written(world, "<i>\r\n\x00\x1b" + "x" * 10_000)
    html = world.answer("GET", "a.test", "/seen", "", "").html
    assert html.startswith("ann@A:(&lt;i&gt;\nxxx")
    assert 7000 < len(html) < 8100


def test_what_cannot_be_answered_is_refused(notes: WebSite) -> None:
    world = SiteWorld((notes,))
    assert world.answer("GET", "c.test", "/seen", "", "").status == 404
    assert world.answer("GET", "a.test", "/nowhere", "", "").status == 404
    assert world.answer("DELETE", "a.test", "/seen", "", "").status == 404
    assert world.answer("POST", "a.test", "/write", "", "&".join(f"a{n}=1" for n in range(1000))).status == 400


def test_an_edited_row_is_gone_and_new(notes: WebSite) -> None:
    world = SiteWorld((notes,))
    after = world._open(notes)
    after.execute("INSERT INTO passing VALUES ('x')")
    after.execute("INSERT INTO notes VALUES ('x')")
    (change,) = world.outcome().changes.values()
    assert (change.removed, change.added) == ((), ({"text": "x"},))


# --- the server ----------------------------------------------------------------------------------------------------


def asked(at: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection(at, timeout=10)
    connection.request("GET" if body is None else "POST", path, body, headers)
    response = connection.getresponse()
    said = response.read().decode()
    connection.close()
    return response.status, said


@pytest.fixture
def hosting() -> Iterator[tuple[Hosting, str]]:
    hosting = Hosting()
    yield hosting, hosting.enter()
    hosting.leave()


def test_only_requests_with_a_secret_are_answered(hosting: tuple[Hosting, str], notes: WebSite) -> None:
    server, at = hosting
    first, second = SiteWorld((notes,)), SiteWorld((notes,))
    mine, other = server.admit(first), server.admit(second)
    written(second, "secret")
    assert asked(at, "/seen", Host="a.test")[0] == 403
    assert asked(at, "/seen", **{"Host": "a.test", HEADER: "guess"})[0] == 403
    assert asked(at, "/seen", **{"Host": "a.test:80", HEADER: mine}) == (200, "ann@A:")
    assert asked(at, "/seen", **{"Host": "a.test", HEADER: other}) == (200, "ann@A:(secret)")
    server.dismiss(mine)
    assert asked(at, "/seen", **{"Host": "a.test", HEADER: mine})[0] == 403


def test_a_body_without_an_end_is_refused(hosting: tuple[Hosting, str], notes: WebSite) -> None:
    server, at = hosting
    secret = server.admit(SiteWorld((notes,)))
    assert asked(at, "/write", b"text=" + b"x" * 300_000, **{"Host": "a.test", HEADER: secret})[0] == 413


def test_the_server_ends_with_its_last_user_and_begins_again(notes: WebSite) -> None:
    server = Hosting()
    first = server.enter()
    assert server.enter() == first
    server.leave()
    assert asked(first, "/", Host="a.test")[0] == 403
    server.leave()
    with pytest.raises(ConnectionRefusedError):
        asked(first, "/", Host="a.test")
    again = server.enter()
    assert asked(again, "/", Host="a.test")[0] == 403
    server.leave()


# --- all sites -----------------------------------------------------------------------------------------------------

SITES_HERE = pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)


def links(html: str, page: str) -> set[str]:
    """Where a page's links lead on its own host, without their fragments."""
    found = (unescape(href).partition("#")[0] for href in re.findall(r'<a [^>]*href="([^"]*)"', html))
    return {href if href.startswith("/") else page + href for href in found if re.match(r"/(?!/)|\?|$", href)}


@SITES_HERE
def test_every_link_leads_somewhere(site: WebSite) -> None:
    for host in site.hosts:
        world, known, waiting = SiteWorld(SITES), {"/"}, ["/"]
        while waiting and len(known) < 1500:
            path, _, query = waiting.pop(0).partition("?")
            reply = world.answer("GET", host, path, query, "")
            while reply.to:
                path, _, query = reply.to.partition("?")
                reply = world.answer("GET", host, path, query, "")
            assert reply.status in (200, 403), f"http://{host}{path}?{query}"
            new = links(reply.html, path) - known
            known |= new
            waiting += sorted(new)
        assert len(known) > 20
        assert world.outcome().changes == {}


@SITES_HERE
def test_nothing_that_is_sent_makes_a_site_fail(site: WebSite) -> None:
    rng = Random(7)
    pages = " ".join(file.read_text("utf-8") for file in sorted(site.templates.glob("*.html")))
    fields = sorted(set(re.findall(r'name="(\w+)"', pages)))
    junk = [
        "",
        "0",
        "-1",
        "9" * 40,
        "1.5",
        "'; DROP TABLE x; --",
        "<xss>",
        "%",
        "\0",
        "é💥",
        "a" * 5000,
        "../..",
        "[[",
        "1",
    ]
    for name, host in site.hosts.items():
        for user in {host.user, None}:
            world = SiteWorld(SITES)
            world._users[name] = user
            for route in host.routes:
                for _ in range(6):
                    path = re.sub(r"<[^>]+>", lambda _: rng.choice(junk)[:50], route.pattern)
                    sent = {field: rng.choice(junk) for field in rng.sample(fields, min(len(fields), rng.randrange(9)))}
                    query, body = (sent, {}) if route.method == "GET" else ({}, sent)
                    reply = world.answer(route.method, name, path, urlencode(query), urlencode(body))
                    assert reply.status < 500
                    assert "<xss" not in reply.html


def test_sites_are_the_same_in_every_process() -> None:
    say = (
        "import hashlib; from agym.envs.websites.catalog import SITES\n"
        "from agym.envs.websites.hosting import open_copy\n"
        "for site in SITES: print(hashlib.sha256('\\n'.join(open_copy(site).iterdump()).encode()).hexdigest())"
    )
    commands = {seed: [sys.executable, "-c", say] for seed in ("1", "2")}
    said = {
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True).stdout
        for seed, command in commands.items()
    }
    assert [len(each.split()) for each in said] == [len(SITES)]


# --- tasks ---------------------------------------------------------------------------------------------------------


def databases() -> Databases:
    return SiteWorld(SITES).outcome().before


def test_tasks_and_what_is_true_are_frozen() -> None:
    file = Path(sys.modules[create.__module__].__file__ or "").parent / "data" / "tasks.txt"
    assert file.read_text("utf-8").splitlines() == list(describe_tasks())


def test_there_are_enough_tasks_of_each_part() -> None:
    counted = Counter(task.template.site for task in list_tasks().values())
    least = {"shopping": 35, "shopping_admin": 25, "forum": 25, "wiki": 20, "tracker": 30, SEVERAL: 5}
    assert set(counted) == set(least)
    assert all(counted[part] >= number for part, number in least.items())


def test_ids_of_templates_are_their_own() -> None:
    assert len({(template.site, template.id) for template in list_templates()}) == len(list_templates())
    assert len(list_tasks()) == sum(len(template.variants) for template in list_templates())


def test_every_task_asks_for_something_and_says_what() -> None:
    before = databases()
    for name, task in list_tasks().items():
        assert not re.search(r"[{}]", task.intent + task.start + (task.url(before) or "")), name
        assert any(
            part is not None for part in (task.truth(before), task.url(before), task.template.changes or None)
        ), name
        assert urlsplit(task.start).hostname in HOSTS, name
        assert set(task.template.needs) <= set(PARTS), name


def test_nothing_is_done_by_doing_nothing() -> None:
    outcome = SiteWorld(SITES).outcome()
    assert [name for name, task in list_tasks().items() if task.done("", task.start, outcome)] == []


def test_giving_up_is_right_only_where_nothing_can_be_done() -> None:
    outcome = SiteWorld(SITES).outcome()
    given_up = {name for name, task in list_tasks().items() if task.done(NOT_POSSIBLE, task.start, outcome)}
    assert given_up == {name for name, task in list_tasks().items() if task.template.answer == NOT_POSSIBLE}
    assert 0 < len(given_up) < len(list_tasks()) / 8


def test_what_was_not_asked_for_may_not_be_done() -> None:
    world = SiteWorld(SITES)
    world.answer("POST", "wiki.test", "/talk/Dunsea", "", "text=by+the+way")
    outcome = world.outcome()
    truths = {name: task.truth(outcome.before) for name, task in list_tasks().items()}
    asked = {name: format_truth(truth) for name, truth in truths.items() if truth is not None}
    assert [name for name, answer in asked.items() if list_tasks()[name].done(answer, "", outcome)] == []
    assert len(asked) > 80


@pytest.mark.parametrize(
    ("task", "url"),
    [
        ("forum/best-of-time/0", "http://forum.test/b/Bakehouse?sort=top&time=month&time=week&sort=new"),
        ("tracker/filter-label/0", "{url}&assignee=nobody"),
        ("tracker/filter-label/0", "{url}&page=9"),
        ("shopping_admin/admin-show-orders/0", "{url}&status=complete"),
        ("shopping_admin/admin-show-orders/0", "{url}&customer=nobody"),
    ],
)
def test_a_list_that_is_narrowed_further_is_another(task: str, url: str) -> None:
    outcome, found = SiteWorld(SITES).outcome(), list_tasks()[task]
    wanted = found.url(outcome.before) or ""
    assert found.done("", wanted, outcome)
    assert not found.done("", url.format(url=wanted), outcome)


@pytest.mark.parametrize(
    ("task", "chosen"),
    [
        ("forum/find-post/0", "?comments=new"),
        ("tracker/filter-label/0", "&author=&assignee=&milestone=&q=&sort=title"),
        ("shopping_admin/admin-show-orders/0", "&number=&customer=&least=&sort=new"),
    ],
)
def test_an_order_that_was_not_asked_for_is_free(task: str, chosen: str) -> None:
    outcome, found = SiteWorld(SITES).outcome(), list_tasks()[task]
    assert found.done("", f"{found.url(outcome.before)}{chosen}", outcome)


def test_templates_are_held_out_whole() -> None:
    env = create({})
    train, test = set(env.tasks("train")), set(env.tasks("test"))
    assert train | test == set(list_tasks())
    assert not {task.rpartition("/")[0] for task in train} & {task.rpartition("/")[0] for task in test}
    for part in PARTS:
        assert set(env.tasks(part)) == {task for task in test if task.startswith(f"{part}/")} != set()


def test_drawn_variants_are_tasks_of_known_templates_and_one_of_four_is_held_out() -> None:
    env = create({})
    train, test = env.tasks("train_drawn"), env.tasks("test_drawn")
    assert {*train, *test} == set(list_drawn())
    assert not {*train, *test} & set(list_tasks())
    assert len(test) > 100
    assert {task.rpartition("/")[0] for task in train} == {task.rpartition("/")[0] for task in test}
    assert {env.difficulty(task) for task in test} >= {"shopping", "forum", "wiki", "tracker"}
    values = [(task.template.id, *task.values.values()) for task in (*list_tasks().values(), *list_drawn().values())]
    assert len(values) == len(set(values)), "a drawn variant is none that is written down"


def test_sites_can_be_chosen() -> None:
    env = create({"sites": ["wiki", "forum"]})
    assert {env.difficulty(task) for task in env.tasks("train")} <= {"wiki", "forum", SEVERAL}
    assert env.tasks("shopping") == ()
    assert env.tasks("wiki") == create({}).tasks("wiki")


# --- the environment, without a browser ----------------------------------------------------------------------------


def test_only_tasks_of_the_templates_that_are_asked_for_are_given() -> None:
    chosen = create({"templates": ["tracker/star", "forum/block"]})
    assert {name.rpartition("/")[0] for name in chosen.tasks("train_drawn")} == {"tracker/star", "forum/block"}
    assert chosen.tasks("wiki") == ()


def test_a_recipe_may_name_every_template_and_no_other() -> None:
    manifest = json.loads((Path(sys.modules[create.__module__].__file__ or "").parent / "env.json").read_text())
    named = manifest["options"]["templates"]["items"]["enum"]
    assert named == [f"{each.site}/{each.id}" for each in list_templates()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"site": ["wiki"]}, "did you mean 'sites'"),
        ({"sites": ["wikki"]}, "did you mean 'wiki'"),
        ({"sites": []}, "must list different ones of shopping"),
        ({"sites": ["wiki", "wiki"]}, "must list different ones of shopping"),
        ({"templates": ["forum/blok"]}, "knows no 'forum/blok'; did you mean 'forum/block'"),
        ({"templates": ["zzz"]}, "knows no 'zzz'"),
        ({"max_steps": 0}, "from 1 to 1000"),
        ({"observation_tokens": True}, "whole number"),
    ],
)
def test_a_mistake_in_the_options_is_named(options: dict[str, Json], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        create(options)


def test_what_is_no_task_or_split_is_refused_before_anything_starts() -> None:
    env = create({})
    for call in (lambda: env.reset("wiki/fact/99", 0), lambda: env.difficulty("")):
        with pytest.raises(UnknownTask):
            call()
    with pytest.raises(UnknownSplit, match="only train, test"):
        env.tasks("dev")
    with pytest.raises(EpisodeOver):
        env.step("wait")
    env.close()


def test_what_the_sites_say_is_in_the_corpus() -> None:
    said = " ".join(create({"sites": ["wiki"]}).corpus())
    assert "Hask Packet" in said
    assert "Recent changes" in said
    answers = [line.split(" ", 2)[2] for line in describe_tasks() if line.startswith("wiki/") and line.count(" ") > 1]
    assert len(answers) > 3
    assert all(answer in said for answer in answers)
    assert "Copper Pour-Over Kettle" not in said
    assert "Copper Pour-Over Kettle" in " ".join(create({"sites": ["shopping"]}).corpus())


@pytest.mark.parametrize("site", sorted(PARTS))
def test_every_word_that_an_expert_says_is_in_the_corpus(site: str) -> None:
    known = set(_words(" ".join(create({"sites": [site]}).corpus())))
    before = {each.name: open_copy(each) for each in SITES}
    tasks = [task for task in {**list_tasks(), **list_drawn()}.values() if set(task.template.needs) <= {site}]
    said = {word for task in tasks for action in task.path(before) for text in action.texts() for word in _words(text)}
    assert len(said) > 50
    assert said <= known


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


# --- in a browser --------------------------------------------------------------------------------------------------


def browses(test: object) -> object:
    missing = pytest.mark.skipif(inspect_machine().browser is None, reason="there is no browser")
    return pytest.mark.heavy(missing(test))


@pytest.fixture(scope="module")
def env() -> Iterator[Websites]:
    env = create({"max_steps": 6})
    yield env
    env.close()


@browses
@pytest.mark.parametrize("part", [*PARTS, SEVERAL])
def test_every_task_is_solved_by_its_path(part: str) -> None:
    envs = [create({}) for _ in range(4)]
    names = [name for name, task in list_tasks().items() if task.template.site == part]
    # all were played when they were written; these keep a change of the pages from breaking them
    names += [name for name, task in list_drawn().items() if task.template.site == part][::8]

    def lost(number: int) -> list[str]:
        return [name for name in names[number :: len(envs)] if envs[number].expert(name, 0) is None]

    with ThreadPoolExecutor(len(envs)) as pool:
        found = [name for each in pool.map(lost, range(len(envs))) for name in each]
    for each in envs:
        each.close()
    assert found == []


@browses
def test_an_episode_begins_with_its_task_and_page(env: Websites) -> None:
    first = env.reset("wiki/fact/0", 0).text
    assert first.startswith("Task: How many people live in Oxmere? Answer as the wiki has it.\nPage: ")
    assert "Address: http://wiki.test/\n" in first
    assert env.reset("wiki/fact/0", 1).text == first


@browses
def test_tasks_are_solved_by_pages_in_pieces_with_the_task_under_each() -> None:
    env = create({"observation_tokens": 160, "repeats": False, "remind": True})
    for name in (*env.tasks("train_drawn")[::30], *env.tasks("test_drawn")[::30]):
        actions = env.expert(name, 0)
        assert actions is not None, name
        texts = [env.reset(name, 0).text, *(env.step(action).observation.text for action in actions[:-1])]
        assert {text.splitlines()[-1] for text in texts} == {f"Task: {list_drawn()[name].intent}"}
        assert all(text.startswith("Page: ") for text in texts)
        assert max(map(estimate_tokens, "".join(texts).split("Page: "))) < 260
    env.close()


@browses
def test_what_was_done_counts_at_the_last_step_and_is_gone_in_the_next_episode(env: Websites) -> None:
    for _ in range(2):
        env.reset("wiki/watch/0", 0)
        env.step("goto [http://wiki.test/wiki/Kite_Sunday]")
        number = re.search(r"button 'Watch' \[(\d+)\]", env.step("wait").observation.text)
        assert number is not None
        steps = [env.step(action) for action in (f"click [{number[1]}]", "nonsense", "drag [1] [2]", "scroll [up]")]
        assert [step.status for step in steps] == [Status.OK, Status.INVALID, Status.INVALID, Status.REFUSED]
        last = steps[-1]
        assert (last.reward, last.truncated, last.terminated, last.observation.text) == (1.0, True, False, ENDED)
        with pytest.raises(EpisodeOver):
            env.step("wait")


@browses
def test_an_episode_that_is_broken_off_leaves_no_page_and_no_world(env: Websites) -> None:
    env.reset(env.tasks("train")[0], 0)
    browser = env._seat.surfer._browser  # type: ignore[union-attr]
    assert browser is not None
    num_pages, num_worlds = len(browser.process.contexts), len(_HOSTING._worlds)
    env.end()
    assert len(browser.process.contexts) == num_pages - 1
    assert len(_HOSTING._worlds) == num_worlds - 1
    with pytest.raises(EpisodeOver):
        env.step("scroll [down]")


@browses
def test_episodes_at_once_see_nothing_of_each_other(env: Websites) -> None:
    other = create({})
    env.reset("wiki/watch/0", 0)
    other.reset("wiki/watch/0", 0)
    env.step("goto [http://wiki.test/new]")
    page = env.step("wait").observation.text
    title = re.search(r"textbox 'Title'.* \[(\d+)\]", page)
    assert title is not None
    env.step(f"type [{title[1]}] [Hidden]")
    form = re.search(r"textbox 'Text'.* \[(\d+)\]", env.step("wait").observation.text)
    assert form is not None
    assert "no page of that title" in other.step("goto [http://wiki.test/wiki/Hidden]").observation.text
    other.close()


@browses
@pytest.mark.parametrize(
    "address", ["http://localhost/", "http://127.0.0.1/", "https://shop.test/", "http://nowhere.test/", "file:///etc"]
)
def test_nothing_but_the_sites_can_be_reached(env: Websites, address: str) -> None:
    env.reset("wiki/fact/0", 0)
    assert env.step(f"goto [{address}]").status is Status.REFUSED
    assert env.step("goto [http://wiki.test/]").status is Status.OK


@browses
def test_it_conforms() -> None:
    options: dict[str, Json] = {"sites": ["wiki"], "max_steps": 5}
    # on a busy machine many neighbours take their time
    patient = Deadlines(open_s=300, step_s=300)
    client = InlineEnv(factory("websites", options), deadlines=patient)
    command = ServeCommand(env="websites", options=options)
    subject = Subject(client=client, command=command, num_tasks=3, max_steps=5, neighbours=12)

    async def checked() -> list[str]:
        results = await run_checks(subject)
        await client.close()
        return [f"{result.check}: {result.detail}" for result in results if not result.passed]

    # not a line of test_conformance.py: that many episodes in a browser take longer than a check may there
    assert asyncio.run(checked()) == []
