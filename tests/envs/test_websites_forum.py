"""The forum: its world is consistent, its pages answer whatever is asked, its tasks are checked by what was done."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import pytest
from agym.envs.websites.catalog import list_tasks
from agym.envs.websites.forum import SITE
from agym.envs.websites.forum.seed import PASSWORD, USER
from agym.envs.websites.framework.records import fetch_all, fetch_value
from agym.envs.websites.hosting import SiteReply, SiteWorld
from agym.envs.websites.tasks import SiteTask

HOST = "forum.test"
MINE = [task for task in list_tasks().values() if task.template.site == "forum"]


@dataclass(slots=True)
class Client:
    """A browser without a screen: goes where it is sent."""

    world: SiteWorld = field(default_factory=lambda: SiteWorld((SITE,)))

    def get(self, path: str) -> SiteReply:
        parts = urlsplit(path)
        return self.world.answer("GET", HOST, parts.path, parts.query, "")

    def post(self, path: str, /, **form: str) -> SiteReply:
        reply = self.world.answer("POST", HOST, path, "", urlencode(form))
        return self.get(reply.to) if reply.status == 303 else reply

    def row(self, sql: str, *given: object) -> dict[str, object]:
        (found,) = fetch_all(self.world.outcome().after["forum"], sql, *given)
        return found

    def done(self, task: SiteTask, answer: str = "", url: str = "") -> bool:
        return task.done(answer, url, self.world.outcome())


@pytest.fixture
def client() -> Client:
    return Client()


def task(name: str) -> SiteTask:
    return list_tasks()[f"forum/{name}"]


def test_the_world_is_large_enough_and_holds_together(client: Client) -> None:
    db = client.world.outcome().before["forum"]
    counts = {
        table: fetch_value(db, f"SELECT count(*) FROM {table}") for table in ("board", "post", "comment", "member")
    }
    assert counts == {"board": 12, "post": 150, "comment": 500, "member": 26}
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert (
        fetch_value(db, "SELECT max(created) FROM (SELECT created FROM post UNION SELECT created FROM comment)")
        < "2026-03-02 12"
    )
    assert (
        fetch_value(db, "SELECT count(*) FROM comment JOIN post ON post.id = post WHERE comment.created < post.created")
        == 0
    )
    replies = "SELECT count(*) FROM comment a JOIN comment b ON b.id = a.parent"
    assert fetch_value(db, f"{replies} WHERE a.created <= b.created OR a.post <> b.post") == 0
    assert fetch_value(db, "SELECT count(*) FROM post JOIN member ON name = author WHERE created < joined") == 0


def test_what_a_page_counts_is_what_there_is(client: Client) -> None:
    number = client.row("SELECT id, board, score, comments FROM scored_post ORDER BY comments DESC LIMIT 1")
    html = client.get(f"/b/{number['board']}/{number['id']}").html
    assert f"score {number['score']}" in html
    assert f"{number['comments']} comments" in html
    assert html.count('<article id="comment-') == number["comments"]


def test_every_post_is_on_one_page_of_all() -> None:
    client, seen = Client(), list[str]()
    for page in range(1, 11):
        seen += re.findall(r'<h2><a href="(/b/[^"]+)"', client.get(f"/all?sort=new&page={page}").html)
    assert len(seen) == len(set(seen)) == 150


def test_posts_of_a_range_of_time_are_those_since_then(client: Client) -> None:
    html = client.get("/all?sort=top&time=week").html
    days = re.findall(r"in \w+, (\S+) \d", html)
    assert days
    assert min(days) >= "2026-02-23"


def test_the_same_vote_twice_is_none(client: Client) -> None:
    client.post("/post/1/vote", vote="up")
    assert list(client.world.outcome().changes) == ["forum.vote"]
    client.post("/post/1/vote", vote="up")
    assert client.world.outcome().changes == {}


def test_a_vote_goes_back_to_the_page_it_came_from_but_nowhere_else(client: Client) -> None:
    for back, to in (("/all?page=2", "/all?page=2"), ("//elsewhere.test", "/b/"), ("http://elsewhere.test", "/b/")):
        reply = client.world.answer("POST", HOST, "/post/1/vote", "", urlencode({"vote": "down", "back": back}))
        assert reply.to.startswith(to)


def test_what_is_another_member_s_cannot_be_changed(client: Client) -> None:
    post = client.row("SELECT id FROM post WHERE author <> ? LIMIT 1", USER)["id"]
    comment = client.row("SELECT id FROM comment WHERE author <> ? LIMIT 1", USER)["id"]
    board = client.row("SELECT name FROM board WHERE founder <> ? LIMIT 1", USER)["name"]
    refused = (f"/post/{post}/edit", f"/post/{post}/delete", f"/comment/{comment}/edit", f"/b/{board}/edit")
    assert [client.post(path, title="x", body="x").status for path in refused] == [403] * 4
    assert client.world.outcome().changes == {}


def test_nothing_can_be_written_once_logged_out(client: Client) -> None:
    assert "Log in" in client.post("/logout").html
    writes = ("/submit", "/post/1/comment", "/post/1/vote", "/b/Allotment/subscribe", "/boards/new", "/biography")
    assert {
        client.post(path, board="Allotment", title="x", body="x", vote="up", name="xyz").status for path in writes
    } == {403}
    assert client.post("/login", name=USER, password="wrong").status == 400
    assert USER in client.post("/login", name=USER, password=PASSWORD).html


def test_what_is_written_is_shown_as_it_was_written(client: Client) -> None:
    html = client.post(
        "/submit", board="Allotment", title="<script>alert(1)</script>", body="<b>\n'; DROP TABLE post"
    ).html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<b>" not in html
    assert client.row("SELECT count(*) AS number FROM post")["number"] == 151


def test_a_form_with_a_fault_comes_back_with_its_words(client: Client) -> None:
    for fault in ({"title": ""}, {"board": "Nowhere"}, {"url": "ftp://x"}):
        reply = client.post("/submit", **{"board": "Allotment", "title": "Peas", "body": "My own words", **fault})
        assert reply.status == 400
        assert "My own words" in reply.html
    assert client.world.outcome().changes == {}


def test_a_comment_with_replies_leaves_its_place_when_it_is_deleted(client: Client) -> None:
    page = client.post("/post/1/comment", body="First words").html
    number = int(re.findall(r"comment-(\d+)", page.partition("First words")[0])[-1])
    client.post(f"/comment/{number}/reply", body="Second words")
    html = client.post(f"/comment/{number}/delete").html
    assert "First words" not in html
    assert "Deleted by its author" in html
    assert "Second words" in html


def test_who_is_blocked_is_not_read_any_more(client: Client) -> None:
    post = client.row("SELECT id, board, author, title FROM post ORDER BY id DESC LIMIT 1")
    client.post(f"/user/{post['author']}/block")
    assert f"By {post['author']}, whom you have blocked" in client.get(f"/b/{post['board']}/{post['id']}").html
    assert f"/b/{post['board']}/{post['id']}" not in client.get("/all?sort=new").html
    assert post["author"] in client.get("/blocked").html
    client.post(f"/user/{post['author']}/unblock")
    assert client.world.outcome().changes == {}


def test_a_founder_may_edit_the_board(client: Client) -> None:
    client.post("/boards/new", name="KiteField", title="Kites", description="", sidebar="")
    assert "Strings and wind" in client.post("/b/KiteField/edit", title="Kites", description="Strings and wind").html
    assert client.post("/boards/new", name="kitefield", title="Again").status == 400


def test_words_are_found_wherever_they_stand(client: Client) -> None:
    assert "The washing machine that walks" in client.get("/search?q=MACHINE+walks").html
    assert "0 found" in client.get("/search?q=%25%25").html
    assert "tess_dunnock" in client.get("/search?q=birds&in=members").html
    assert "RadioShed" in client.get("/search?q=aerials&in=boards").html


JUNK = ("", "x", "0", "-1", "1", "99999999999999999999", "' OR '1'='1", "<b>", "é", "%", "..", "Allotment", "a" * 3000)


@pytest.mark.parametrize("user", [USER, None])
def test_junk_is_answered_and_never_breaks_a_page(client: Client, user: str | None) -> None:
    if user is None:
        client.post("/logout")
    fields = re.findall(r"\w+", "board title body url name vote back q in sort time page comments biography sidebar")
    for route in SITE.hosts[HOST].routes:
        if route.pattern in ("/logout", "/login"):
            continue
        for junk in JUNK:
            path = re.sub(r"<[^>]+>", junk or "0", route.pattern)
            given = urlencode(dict.fromkeys(fields, junk))
            assert client.world.answer(route.method, HOST, path, given, given).status < 500


def test_there_are_tasks_of_each_kind() -> None:
    assert len(MINE) >= 25
    templates = {each.template.id: each.template for each in MINE}.values()
    assert len(templates) >= 9
    kinds = [(template.answer is not None, template.url is not None, template.changes != ()) for template in templates]
    assert all(map(any, kinds))
    assert all(map(any, zip(*kinds, strict=True)))


@pytest.mark.parametrize("name", [task.id for task in MINE])
def test_doing_nothing_is_no_success_and_the_truth_is_one(client: Client, name: str) -> None:
    one_task = list_tasks()[name]
    assert not client.done(one_task, "", one_task.start)
    assert one_task.path(client.world.outcome().before)


def test_truths_are_not_a_matter_of_order(client: Client) -> None:
    """Nothing that is asked for is tied with something else."""
    db = client.world.outcome().before["forum"]
    for each in MINE:
        if each.template.id == "best-post-comments":
            scores = fetch_all(
                db, "SELECT score FROM scored_post WHERE board = ? ORDER BY 1 DESC LIMIT 2", each.values["board"]
            )
            assert scores[0] != scores[1]
        if each.template.id == "best-comment":
            of_post = (
                "SELECT score FROM scored_comment WHERE post = (SELECT id FROM post WHERE title = ?) ORDER BY 1 DESC"
            )
            scores = fetch_all(db, of_post, each.values["title"])
            assert scores[0] != scores[1]
        if "title" in each.values and each.template.id not in ("submit-text", "submit-link", "create-board"):
            assert fetch_value(db, "SELECT count(*) FROM post WHERE title = ?", each.values["title"]) == 1


def test_a_task_is_done_by_what_it_asks_for_and_nothing_else(client: Client) -> None:
    subscribe = task("subscribe/0")
    client.post("/b/NightSky/subscribe")
    assert client.done(subscribe)
    client.post("/post/1/vote", vote="up")
    assert not client.done(subscribe)


def test_a_reply_below_another_comment_is_not_the_one_asked_for(client: Client) -> None:
    reply, text = task("reply-oldest/0"), str(task("reply-oldest/0").values["text"])
    on_post = "SELECT id FROM comment WHERE post = (SELECT id FROM post WHERE title = ?) ORDER BY id"
    first, second, *_ = fetch_all(client.world.outcome().before["forum"], on_post, reply.values["title"])
    wrong = Client()
    wrong.post(f"/comment/{second['id']}/reply", body=text)
    assert not wrong.done(reply)
    client.post(f"/comment/{first['id']}/reply", body=text)
    assert client.done(reply)


def test_deleting_a_post_takes_its_comments_and_votes_along(client: Client) -> None:
    newest = client.row("SELECT id FROM post WHERE author = ? ORDER BY created DESC LIMIT 1", USER)["id"]
    client.post(f"/post/{newest}/delete")
    assert client.done(task("delete-own/1"))
    assert not client.done(task("delete-own/0"))
    lost = "SELECT count(*) AS number FROM vote WHERE kind = 'comment' AND thing NOT IN (SELECT id FROM comment)"
    assert client.row(lost)["number"] == 0
