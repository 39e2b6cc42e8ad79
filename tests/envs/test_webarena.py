from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.conformance import Subject, run_checks
from agym.envs.errors import BadOption, EnvFault, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Json, Status, Step
from agym.envs.webarena import WebArena, create
from agym.envs.webarena.checks import list_questions, matches_answer, matches_text, matches_url
from agym.envs.webarena.tasks import CATEGORIES, PageTarget, SuccessCheck, load_tasks
from agym.envs.wire import judge_from
from agym.machine import inspect_machine

HOSTS = {"shopping": "http://127.0.0.1:1", "reddit": "http://127.0.0.1:2"}


def config(number: int, **chosen: Any) -> dict[str, Any]:
    """A task in WebArena's form."""
    return {
        "sites": ["shopping"],
        "task_id": number,
        "require_login": False,
        "storage_state": None,
        "start_url": "__SHOPPING__",
        "geolocation": None,
        "intent_template": "",
        "instantiation_dict": {},
        "intent": f"task {number}",
        "require_reset": False,
        "eval": answer(exact_match="42"),
        "intent_template_id": number,
        **chosen,
    }


def answer(**references: Any) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": references, "reference_url": "", "program_html": []}


def page(**target: Any) -> dict[str, Any]:
    return {"eval_types": ["program_html"], "reference_answers": None, "reference_url": "", "program_html": [target]}


def written(folder: Path, *configs: dict[str, Any]) -> Path:
    file = folder / "tasks.json"
    file.write_text(json.dumps(configs), encoding="utf-8")
    return file


# --- task files ----------------------------------------------------------------------------------------------------


def test_tasks_are_read_with_addresses_in_place_of_names(tmp_path: Path) -> None:
    target = {"url": "__REDDIT__/f/x", "locator": "", "required_contents": {"must_include": ["a", "b |OR| c"]}}
    file = written(
        tmp_path,
        config(3, start_url="__SHOPPING__/a |AND| __REDDIT__", sites=["shopping", "reddit"], eval=page(**target)),
    )
    (task,) = load_tasks(file, HOSTS).by_id.values()
    assert task.start == ("http://127.0.0.1:1/a", "http://127.0.0.1:2")
    assert task.check.targets[0].url == "http://127.0.0.1:2/f/x"
    assert task.check.targets[0].include == ("a", "b |OR| c")
    assert task.category is None


def test_what_cannot_be_played_here_is_left_out_and_counted(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        config(0),
        config(1, sites=["map"]),
        config(2, start_url="__GITLAB__"),
        config(3, eval=answer(fuzzy_match=["about right"])),
        config(4, eval=answer(fuzzy_match="N/A")),
    )
    tasks = load_tasks(file, HOSTS)
    assert tuple(tasks.by_id) == ("0", "3", "4")
    assert tasks.left_out == 2


def test_tasks_whose_answers_are_compared_by_their_sense_need_a_judge(tmp_path: Path) -> None:
    evals = [
        answer(exact_match="x"),
        answer(fuzzy_match=["a", "b"]),
        answer(fuzzy_match="N/A") | {"string_note": "why"},
    ]
    file = written(tmp_path, *(config(number, eval=each) for number, each in enumerate(evals)))
    env = create({"tasks_file": str(file), "hosts": HOSTS})
    assert [env.judged(str(number)) for number in range(3)] == [False, True, False]
    checks = [load_tasks(file, HOSTS).by_id[str(number)].check for number in range(3)]
    assert (checks[1].alike, checks[2].reason) == (("a", "b"), "why")


def test_templates_are_held_out_whole_and_categories_are_parts_of_test(tmp_path: Path) -> None:
    forum = {"sites": ["reddit"], "start_url": "__REDDIT__"}
    configs = [config(number, intent_template_id=number // 2, **(forum if number < 2 else {})) for number in range(20)]
    env = create({"tasks_file": str(written(tmp_path, *configs)), "hosts": HOSTS})
    assert env.tasks("test") == ("0", "1", "10", "11")
    assert env.tasks("forum") == ("0", "1")
    assert env.tasks("shopping") == ("10", "11")
    assert env.tasks("map") == ()
    assert len(env.tasks("train")) == 16
    assert env.difficulty("0") == "forum"
    with pytest.raises(UnknownSplit):
        env.tasks("wikipedia")
    with pytest.raises(UnknownTask):
        env.reset("20", 0)
    with pytest.raises(EpisodeOver):
        env.step("wait")


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_category_is_the_part_of_test_about_its_site(category: str, tmp_path: Path) -> None:
    """Each site has a held-out task and one to train with; one of all sites together is of no category."""
    sites = list(CATEGORIES.values())
    configs = [config(5 * number, sites=[site, "wikipedia"]) for number, site in enumerate(sites)]
    configs += [config(5 * number + 1, sites=[site]) for number, site in enumerate(sites)]
    hosts = dict.fromkeys((*sites, "wikipedia"), "http://127.0.0.1:1")
    file = written(tmp_path, *configs, config(50, sites=sites))
    env = create({"tasks_file": str(file), "hosts": hosts})
    assert env.tasks(category) == (str(5 * list(CATEGORIES).index(category)),)
    assert set(env.tasks(category)) < set(env.tasks("test"))
    assert env.difficulty(env.tasks(category)[0]) == category


@pytest.mark.parametrize(
    "broken",
    [
        {"eval": {"eval_types": ["guess"]}},
        {"eval": {"eval_types": []}},
        {"eval": answer(nearly="x")},
        {"eval": answer(must_include="x")},
        {"eval": answer(fuzzy_match="x")},
        {"eval": answer()},
        {"eval": {"eval_types": ["url_match"], "reference_url": "x", "url_note": "EXACT"}},
        {"eval": page(url="last", locator="", required_contents="x")},
        {"sites": None},
        {"intent_template_id": "x"},
    ],
)
def test_a_task_of_another_form_is_named(tmp_path: Path, broken: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="task number 1 is not of WebArena's form"):
        load_tasks(written(tmp_path, config(0), config(1, **broken)), HOSTS)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    file.write_text("{", encoding="utf-8")
    with pytest.raises(BadOption, match="is not JSON"):
        load_tasks(file, HOSTS)
    with pytest.raises(BadOption, match="two tasks '0'"):
        load_tasks(written(tmp_path, config(0), config(0)), HOSTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_file": "x"}, "did you mean 'tasks_file'"),
        ({"tasks_file": "/nowhere.json"}, "there is none at"),
        ({"hosts": {"shoping": "http://a"}}, "did you mean 'shopping'"),
        ({"hosts": {"map": "a.b"}}, "must be an address"),
        ({"hosts": {"map": "http://me:secret@a.b"}}, "must be an address"),
        ({"max_steps": 0}, "from 1 to 1000"),
    ],
)
def test_a_mistake_in_the_options_is_named(options: dict[str, Json], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        create(options)


# --- checks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "said", "right"),
    [
        ({"exact": "Quest Band"}, " 'quest band' ", True),
        ({"exact": "Quest Band"}, "a quest band", False),
        ({"include": ("red", "blue")}, "Blue and red", True),
        ({"include": ("red", "blue")}, "red", False),
        ({"include": ("0",)}, "10", False),
        ({"include": ("0",)}, "0 of them", True),
        ({"include": ("6", "10")}, "16 10", True),
        ({"unachievable": True}, "n/a", True),
        ({"unachievable": True}, "I could not", False),
        ({"exact": "x"}, "'", False),
        # a single letter or digit must be one of the words that nltk parts an answer into
        *(
            ({"include": (one,)}, said, False)
            for one, said in (
                ("0", "$0.50"),
                ("1", "1,000"),
                ("2", "about 2.5 hours"),
                ("3", "2023-3-14"),
                ("5", "between 5-6"),
                ("5", "at 1:05"),
                ("1", "on 1/2/2023"),
                ("2", "2-3 days"),
            )
        ),
        *(
            ({"include": (one,)}, said, True)
            for one, said in (("2", "there are 2."), ("5", "5%"), ("3", "#3"), ("4", "(4), so 'four'"), ("1", "$1"))
        ),
    ],
)
def test_answers_are_compared_as_webarena_does(check: dict[str, Any], said: str, right: bool) -> None:
    assert matches_answer(SuccessCheck(kinds=frozenset(("string_match",)), **check), said) is right


STRINGS = frozenset(("string_match",))
IMPOSSIBLE = SuccessCheck(kinds=STRINGS, unachievable=True, reason="the shop sells no cars")


@pytest.mark.parametrize(
    ("check", "said", "expected"),
    [
        (SuccessCheck(kinds=STRINGS, alike=("two hours", "by bus")), "120 minutes on a bus", ["two hours", "by bus"]),
        (SuccessCheck(kinds=STRINGS, alike=("two hours",)), " ", []),
        (SuccessCheck(kinds=STRINGS, exact="42"), "41", []),
        (IMPOSSIBLE, "there are no cars here", ["the shop sells no cars"]),
        (IMPOSSIBLE, "N/A", []),
        (IMPOSSIBLE, "", []),
        (SuccessCheck(kinds=STRINGS, unachievable=True), "there are none", []),
    ],
)
def test_a_judge_is_asked_about_each_reference(check: SuccessCheck, said: str, expected: list[str]) -> None:
    questions = list_questions(check, "How long?", said)
    assert [each.evidence for each in questions] == [
        {"task": "How long?", "expected": each, "answer": said} for each in expected
    ]


@pytest.mark.parametrize(
    ("reference", "url", "right"),
    [
        ("http://a/b", "http://a/b/", True),
        ("http://a/b", "http://a/b/c?d=1", True),
        ("http://a/b", "http://a/c", False),
        ("http://a/b?q=1", "http://a/b?q=1&r=2", True),
        ("http://a/b?q=1", "http://a/b?q=2", False),
        ("http://a/b |OR| http://a/c", "http://a/c", True),
        # only the slash at an address's very end does not count
        ("http://a/b/?q=1", "http://a/bc?q=1", False),
        ("http://a/b/", "http://a/bc", True),
    ],
)
def test_an_address_matches_as_far_as_its_reference_goes(reference: str, url: str, right: bool) -> None:
    assert matches_url(reference, url) is right


def test_contents_are_all_required_each_in_one_of_its_forms() -> None:
    target = PageTarget(url="last", locator="", include=("Red", "M |OR| Medium"))
    assert matches_text(target, "a red one, medium")
    assert not matches_text(target, "red")
    assert matches_text(PageTarget(url="last", locator="", exact="5"), " 5 ")
    assert not matches_text(PageTarget(url="last", locator="", exact="5"), "55")


# --- on a small shop and forum -------------------------------------------------------------------------------------

PAGES = {
    "/": "<title>Shop</title><a href='/lamp'>Lamp</a> <form action='/buy'><input name=what aria-label=Item></form>",
    "/lamp": "<title>Lamp</title><p id=price>$ 42 &amp; up</p>",
    "/rest/V1/products/L1/reviews": '[{"nickname": "Bo", "ratings": [{"percent": 20}]}, {"nickname": "Ida"}]',
    "/rest/default/V1/integration/admin/token": '"key"',
    "/rest/V1/orders": '{"items": [{"increment_id": "000000007"}]}',
    "/sales/order/view/order_id/7/": "<p>ordered: lamp</p>",
    "/f/news/12/a-title": "<title>Post</title><p>the post and its comments</p>",
    "/f/news/12/": "<title>Post</title><p>by itself</p>",
    "/members": """<table><tr><td data-label=Account><span class=gl-avatar-labeled-sublabel>@bo</span></td>
      <td class=col-max-role><span>Owner</span></td></tr></table>""",
    "/f/news/13/it's": "<title>Other</title>",
    "/f/news/13/": "<title>Other</title><p>by itself</p>",
    "/asks": "<p id=price>done</p><script>setInterval(() => fetch('/lamp'), 100)</script>",
}


def browses(test: object) -> object:
    missing = pytest.mark.skipif(inspect_machine().browser is None, reason="there is no browser")
    return pytest.mark.heavy(missing(test))


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    bought: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/buy":
                bought.append(parts.query.partition("=")[2])
            listed = f"<title>Bag</title><ul>{''.join(f'<li>{each}</li>' for each in bought)}</ul>"
            who = f"<p>{self.headers.get('Cookie', 'nobody')}</p>"
            made = {"/buy": listed, "/bag": listed, "/who": who}
            found = made.get(parts.path, PAGES.get(parts.path))
            body = (found or "none").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json" if parts.path.startswith("/rest") else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


DOWN = {"gitlab": "http://127.0.0.1:2"}
"""Nobody is there."""


def played(site: str, folder: Path, *actions: str, **chosen: Any) -> Step:
    file = written(folder, config(0, **chosen))
    env = create({"tasks_file": str(file), "hosts": {"shopping": site, "reddit": site, **DOWN}, "max_steps": 4})
    try:
        env.reset("0", 0)
        return [env.step(action) for action in actions][-1]
    finally:
        env.close()


@browses
def test_the_agent_sees_the_site_and_an_answer_ends_it(site: str, tmp_path: Path) -> None:
    env = create({"tasks_file": str(written(tmp_path, config(0))), "hosts": {"shopping": site}})
    first = env.reset("0", 0).text
    assert first.splitlines() == [
        "Task: task 0",
        "Page: Shop",
        f"Address: {site}/",
        "[1] link 'Lamp'",
        "[2] textbox 'Item'",
    ]
    seen = env.step("click [1]")
    assert "$ 42 & up" in seen.observation.text
    assert (seen.reward, seen.ended) == (0.0, False)
    over = env.step("stop [42]")
    assert (over.reward, over.terminated, over.info) == (1.0, True, {"success": True})
    with pytest.raises(EpisodeOver):
        env.step("wait")
    env.close()


@browses
def test_a_wrong_answer_scores_0_and_no_answer_is_told_of_the_limit(site: str, tmp_path: Path) -> None:
    assert played(site, tmp_path, "stop [41]").reward == 0.0
    over = played(site, tmp_path, "wait", "wait", "qwertz", "drag [1] [2]")
    assert (over.reward, over.truncated, over.status) == (0.0, True, Status.INVALID)


@browses
def test_a_judge_is_asked_once_all_else_holds(site: str, tmp_path: Path) -> None:
    check = {
        "eval_types": ["string_match", "url_match"],
        "reference_answers": {"fuzzy_match": ["forty-two"]},
        "reference_url": "__SHOPPING__/lamp",
    }
    over = played(site, tmp_path, "click [1]", "stop [42]", eval=check)
    asked = judge_from(over.info["judge"])
    assert (over.reward, over.info["success"], asked.reward, asked.required) == (0.0, False, 1.0, True)
    assert asked.questions[0].evidence == {"task": "task 0", "expected": "forty-two", "answer": "42"}
    assert played(site, tmp_path, "stop [42]", eval=check).info == {"success": False}
    note = answer(fuzzy_match="N/A") | {"string_note": "no cars"}
    assert played(site, tmp_path, "stop [N/A]", eval=note).reward == 1.0
    over = played(site, tmp_path, "stop [no cars are sold]", eval=note)
    assert (over.reward, judge_from(over.info["judge"]).required) == (0.0, False)


@browses
def test_where_the_agent_ends_up_counts_even_if_it_does_not_stop(site: str, tmp_path: Path) -> None:
    check = {"eval_types": ["url_match"], "reference_url": "__SHOPPING__/lamp", "url_note": "GOLD in PRED"}
    assert played(site, tmp_path, "click [1]", "stop", eval=check).reward == 1.0
    assert played(site, tmp_path, "stop", eval=check).reward == 0.0
    assert played(site, tmp_path, "click [1]", "wait", "wait", "wait", eval=check).reward == 1.0


@browses
def test_what_stands_on_a_page_counts_as_code_finds_it(site: str, tmp_path: Path) -> None:
    price = {"locator": "document.querySelector('#price').outerText", "required_contents": {"exact_match": "$ 42 & UP"}}
    assert played(site, tmp_path, "stop", eval=page(url="__SHOPPING__/lamp", **price)).reward == 1.0
    assert played(site, tmp_path, "stop", eval=page(url="last", **price)).reward == 0.0
    assert played(site, tmp_path, "click [1]", "stop", eval=page(url="last", **price)).reward == 1.0


@browses
def test_what_the_agent_did_to_the_site_counts(site: str, tmp_path: Path) -> None:
    bag = page(url="__SHOPPING__/bag", locator="", required_contents={"must_include": ["chair"]})
    assert played(site, tmp_path, "stop", eval=bag).reward == 0.0
    # Enter is pressed unless it is said not to
    assert played(site, tmp_path, "type [2] [chair] [0]", "stop", eval=bag).reward == 0.0
    assert played(site, tmp_path, "type [2] [chair]", "stop", eval=bag).reward == 1.0


@browses
@pytest.mark.parametrize(
    ("url", "locator", "wanted"),
    [
        ("func:shopping_get_latest_order_url()", "", "ordered: lamp"),
        ("last", "func:shopping_get_sku_latest_review_author('L1')", "Ida"),
        ("__SHOPPING__/members", "func:gitlab_get_project_memeber_role(__page__, 'bo')", "Owner"),
        ("func:reddit_get_post_url('__last_url__')", "document.title", "Post"),
    ],
)
def test_helpers_that_task_files_name_are_there(site: str, tmp_path: Path, url: str, locator: str, wanted: str) -> None:
    check = page(url=url, locator=locator, required_contents={"must_include": [wanted]})
    started = {"start_url": "__REDDIT__/f/news/12/a-title"}
    assert played(site, tmp_path, "stop", eval=check, **started).reward == 1.0
    other = page(url=url, locator=locator, required_contents={"must_include": ["something else"]})
    assert played(site, tmp_path, "stop", eval=other, **started).reward == 0.0


@browses
def test_a_page_that_is_never_idle_is_judged_all_the_same(site: str, tmp_path: Path) -> None:
    price = {"locator": "document.querySelector('#price').outerText", "required_contents": {"exact_match": "done"}}
    assert played(site, tmp_path, "stop", eval=page(url="__SHOPPING__/asks", **price)).reward == 1.0
    assert played(site, tmp_path, "stop", eval=page(url="__SHOPPING__/nowhere", **price)).reward == 0.0


@browses
def test_the_last_page_is_where_the_target_before_has_led(site: str, tmp_path: Path) -> None:
    where, path = "document.location.pathname", {"exact_match": "/lamp"}
    lamp, last = ({"url": url, "locator": where, "required_contents": path} for url in ("__SHOPPING__/lamp", "last"))
    both = page() | {"program_html": [lamp, last]}
    assert played(site, tmp_path, "stop", eval=both).reward == 1.0
    assert played(site, tmp_path, "stop", eval=page() | {"program_html": [last, lamp]}).reward == 0.0
    post = {"url": "func:reddit_get_post_url('__last_url__')", "locator": where}
    moved = [{**lamp, "url": "__REDDIT__/f/news/12/a-title", "required_contents": {"must_include": ["12"]}}]
    moved.append({**post, "required_contents": {"exact_match": "/f/news/12/"}})
    assert played(site, tmp_path, "stop", eval=page() | {"program_html": moved}).reward == 1.0


@browses
def test_an_address_with_a_quote_is_given_to_a_helper_as_it_is(site: str, tmp_path: Path) -> None:
    wanted = {"required_contents": {"must_include": ["by itself"]}}
    check = page(url="func:reddit_get_post_url('__last_url__')", locator="", **wanted)
    assert played(site, tmp_path, "stop", eval=check, start_url="__REDDIT__/f/news/13/it's").reward == 1.0


@browses
def test_a_host_that_does_not_answer_the_judge_is_a_fault(site: str, tmp_path: Path) -> None:
    wanted = {"required_contents": {"must_include": ["x"]}}
    for target, said in (
        (page(url="__GITLAB__/x", locator="", **wanted), "cannot be reached"),
        (page(url="last", locator="func:shopping_get_sku_latest_review_author('L2')", **wanted), "answer as a shop"),
    ):
        with pytest.raises(EnvFault, match=said):
            played(site, tmp_path, "stop", eval=target)


@browses
def test_a_task_is_begun_by_whoever_is_logged_in(site: str, tmp_path: Path) -> None:
    host = urlsplit(site).hostname
    cookie = {"name": "user", "value": "ida", "domain": host, "path": "/", "expires": -1}
    cookie |= {"httpOnly": False, "secure": False, "sameSite": "Lax"}
    (tmp_path / "ida.json").write_text(json.dumps({"cookies": [cookie], "origins": []}))
    check = page(url="__SHOPPING__/who", locator="", required_contents={"must_include": ["user=ida"]})
    assert played(site, tmp_path, "stop", eval=check, storage_state="./ida.json").reward == 1.0
    with pytest.raises(EnvFault, match="needs a login saved at"):
        played(site, tmp_path, "stop", eval=check, storage_state="./nobody.json")


@browses
def test_two_addresses_begin_in_two_tabs(site: str, tmp_path: Path) -> None:
    file = written(tmp_path, config(0, start_url="__SHOPPING__ |AND| __SHOPPING__/lamp"))
    env = create({"tasks_file": str(file), "hosts": {"shopping": site}})
    assert env.reset("0", 0).text.splitlines()[1:3] == ["Tab 0 (here): Shop", "Tab 1: Lamp"]
    env.close()


@browses
def test_it_conforms(site: str, tmp_path: Path) -> None:
    file = written(tmp_path, *(config(number) for number in range(6)))
    client = InlineEnv(lambda: WebArena({"tasks_file": str(file), "hosts": {"shopping": site}, "max_steps": 3}))

    async def checked() -> list[str]:
        results = await run_checks(Subject(client=client, num_tasks=2, neighbours=4, max_steps=3))
        await client.close()
        return [f"{result.check}: {result.detail}" for result in results if not result.passed]

    assert asyncio.run(checked()) == []
