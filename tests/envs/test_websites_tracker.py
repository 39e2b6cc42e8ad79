"""The tracker: its world is consistent, roles are kept, its pages answer whatever is asked, tasks are checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import pytest
from agym.envs.websites.catalog import list_tasks
from agym.envs.websites.framework.records import fetch_all, fetch_value
from agym.envs.websites.hosting import SiteReply, SiteWorld
from agym.envs.websites.tasks import SiteTask
from agym.envs.websites.tracker import SITE
from agym.envs.websites.tracker.seed import PASSWORD, USER

HOST = "tracker.test"
MINE = [task for task in list_tasks().values() if task.template.site == "tracker"]
HERBARIUM, FERRY, BUS, MOTHS = (
    "/fieldnotes/herbarium",
    "/lantern-works/ferry-board",
    "/oskar.pell/night-bus",
    "/fieldnotes/moth-trap",
)


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

    def rows(self, sql: str, *given: object) -> list[dict[str, object]]:
        return fetch_all(self.world.outcome().after["tracker"], sql, *given)

    def number(self, title: object, kind: str) -> int:
        (found,) = self.rows("SELECT number FROM item WHERE title = ? AND kind = ?", title, kind)
        return int(str(found["number"]))

    def done(self, task: SiteTask, answer: str = "", url: str = "") -> bool:
        return task.done(answer, url, self.world.outcome())


@pytest.fixture
def client() -> Client:
    return Client()


def task(name: str) -> SiteTask:
    return list_tasks()[f"tracker/{name}"]


def test_the_world_is_large_enough_and_holds_together(client: Client) -> None:
    db = client.world.outcome().before["tracker"]
    counts = {table: fetch_value(db, f"SELECT count(*) FROM {table}") for table in ("project", "revision", "person")}
    assert counts == {"project": 10, "revision": 250, "person": 25}
    kinds = dict(db.execute("SELECT kind, count(*) FROM item GROUP BY kind").fetchall())
    assert kinds == {"issue": 160, "merge": 40}
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    for table in ("item", "note", "revision", "todo"):
        assert fetch_value(db, f"SELECT max(created) FROM {table}") < "2026-03-02 12"
    assert (
        fetch_value(db, "SELECT count(*) FROM note JOIN item ON item.id = item WHERE note.created < item.created") == 0
    )
    assert (
        fetch_value(
            db, "SELECT count(*) FROM item JOIN project ON project.id = project WHERE item.created < project.created"
        )
        == 0
    )


def test_only_those_who_may_work_on_files_have_done_so(client: Client) -> None:
    worked = "SELECT project, author FROM revision UNION SELECT project, author FROM item WHERE kind = 'merge'"
    roles = """SELECT 1 FROM project_member WHERE project = ?1 AND username = ?2 AND role NOT IN ('guest', 'reporter')
        UNION SELECT 1 FROM team_member JOIN project ON space = team WHERE project.id = ?1 AND username = ?2"""
    db = client.world.outcome().before["tracker"]
    assert all(db.execute(roles, tuple(row)).fetchone() for row in db.execute(worked).fetchall())


def test_a_list_is_narrowed_by_all_that_is_chosen(client: Client) -> None:
    query = {"state": "open", "label": "urgent", "assignee": "nobody"}
    html = client.get(f"{HERBARIUM}/issues?{urlencode(query)}").html
    numbers = {int(number) for number in re.findall(r'issues/(\d+)"', html)}
    truth = """SELECT number FROM item JOIN project ON project.id = item.project JOIN item_label ON item = item.id
        JOIN label ON label.id = label WHERE project.path = 'herbarium' AND kind = 'issue' AND state = 'open'
        AND label.name = 'urgent' AND assignee IS NULL"""
    assert numbers == {row["number"] for row in client.rows(truth)}
    assert numbers
    assert f"{len(numbers)} issue" in html


def test_a_long_list_has_each_issue_once() -> None:
    client, seen = Client(), list[str]()
    for page in (1, 2):
        html = client.get(f"/lantern-works/tide-table/issues?state=all&sort=title&page={page}").html
        seen += re.findall(r'issues/(\d+)"', html)
    assert sorted(map(int, seen)) == list(range(1, 31))


def test_counts_of_commits_are_what_there_is(client: Client) -> None:
    html = client.get(f"{FERRY}/commits?author=theo.lund").html
    total = int(re.findall(r"(\d+) commits", html)[0])
    assert total == len(client.rows("SELECT 1 FROM revision WHERE project = 2 AND author = 'theo.lund'"))


def test_a_private_project_is_not_there_for_others(client: Client) -> None:
    assert client.get(MOTHS).status == 200
    assert "moth-trap" in client.get("/search?q=lamp+timer&in=issues").html
    client.post("/logout")
    assert client.get(MOTHS).status == 404
    assert "moth-trap" not in client.get("/explore").html
    assert "moth-trap" not in client.get("/search?q=lamp+timer&in=issues").html
    assert client.get("/lantern-works/signal-lamp").status == 404
    assert client.post("/login", username=USER, password="wrong").status == 400
    assert USER in client.post("/login", username=USER, password=PASSWORD).html


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (f"{FERRY}/members", {"username": "rosa.tarn", "role": "guest"}),
        (f"{FERRY}/settings", {"name": "Mine", "visibility": "public"}),
        (f"{BUS}/merge_requests/2/merge", {}),
        (f"{BUS}/merge_requests/2/approve", {}),
        (f"{BUS}/labels", {"name": "mine"}),
        (f"{BUS}/milestones/new", {"title": "mine"}),
        (f"{BUS}/issues/8/state", {}),
        ("/groups/lantern-works/members", {"username": "rosa.tarn", "role": "guest"}),
    ],
)
def test_what_one_has_no_role_for_is_refused(client: Client, path: str, form: dict[str, str]) -> None:
    assert client.post(path, **form).status == 403
    assert client.world.outcome().changes == {}


def test_whoever_opened_an_issue_may_close_it_without_a_role(client: Client) -> None:
    page = client.post(f"{BUS}/issues/new", title="Stops in the fog", description="", assignee="oskar.pell").html
    assert "Assignee: nobody" in page
    number = client.number("Stops in the fog", "issue")
    assert "closed" in client.post(f"{BUS}/issues/{number}/state").html


def test_a_merge_brings_its_changes_into_the_files(client: Client) -> None:
    number = client.number("Undo for the weather strip", "merge")
    page = client.post(f"{FERRY}/merge_requests/{number}/merge").html
    assert "merged" in page
    assert "- Undo for the weather strip" in client.get(f"{FERRY}/file/CHANGELOG.md").html
    assert client.post(f"{FERRY}/merge_requests/{number}/merge").status == 400
    assert client.done(task("merge/1"))
    assert not client.done(task("merge/0"))


def test_a_fork_has_the_files_and_may_be_made_once(client: Client) -> None:
    assert "forked from" in client.post("/jun.arrowby/chess-clock/fork", space=USER).html
    assert client.get(f"/{USER}/chess-clock/file/docs/setup.md").status == 200
    assert client.post("/jun.arrowby/chess-clock/fork", space=USER).status == 400
    assert client.post("/jun.arrowby/chess-clock/fork", space="lantern-works").status == 400
    assert client.done(task("fork/0"))


def test_a_name_in_use_cannot_be_taken_again(client: Client) -> None:
    taken = (
        ("/groups/new", {"name": "Mine", "path": "fieldnotes"}),
        ("/groups/new", {"name": "Mine", "path": "explore"}),
        ("/projects/new", {"name": "Recipe Scaler", "space": USER, "visibility": "public"}),
        (f"{HERBARIUM}/labels", {"name": "bug"}),
        (f"{HERBARIUM}/members", {"username": "mara.quill", "role": "guest"}),
        (f"{HERBARIUM}/milestones/new", {"title": "Version 0.3"}),
    )
    assert [client.post(path, **form).status for path, form in taken] == [400] * 6
    assert client.world.outcome().changes == {}


def test_an_edit_of_the_title_keeps_everything_else(client: Client) -> None:
    number = client.number("Barcode reader is slow with many entries", "issue")
    html = client.get(f"{HERBARIUM}/issues/{number}/edit").html
    form = dict(re.findall(r'<input name="(\w+)" value="([^"]*)"', html)) | {"title": "Barcode reader is very slow"}
    form |= dict.fromkeys(re.findall(r'name="(label-\d+)" checked', html), "on")
    form["description"] = re.findall(r"<textarea[^>]*>([^<]*)<", html)[0]
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', html, re.DOTALL):
        form[name] = re.findall(r'value="([^"]*)" selected', options)[0]
    client.post(f"{HERBARIUM}/issues/{number}/edit", **form)
    changed = client.world.outcome().changes
    assert set(changed) == {"tracker.item"}
    assert {**changed["tracker.item"].removed[0], "title": "Barcode reader is very slow"} == changed[
        "tracker.item"
    ].added[0]


def test_what_is_written_is_shown_as_it_was_written(client: Client) -> None:
    html = client.post(
        f"{HERBARIUM}/issues/new", title="<script>alert(1)</script>", description="'; DROP TABLE item"
    ).html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert len(client.rows("SELECT 1 FROM item")) == 201


def test_things_to_do_can_be_done_one_by_one_and_all_at_once(client: Client) -> None:
    waiting = len(client.rows("SELECT 1 FROM todo WHERE NOT done"))
    (first, *_) = client.rows("SELECT id FROM todo WHERE NOT done")
    assert f"To do ({waiting - 1})" in client.post(f"/todos/{first['id']}").html
    assert "To do (0)" in client.post("/todos/done").html
    assert client.post("/todos/999").status == 404


JUNK = ("", "x", "0", "-1", "1", "99999999999999999999", "' OR '1'='1", "<b>", "é", "%", "..", "herbarium", "a" * 3000)
FIELDS = re.findall(
    r"\S+",
    "name path description visibility space readme title text body assignee reviewer milestone due start source role"
    " username status bio location author label sort state q in page label-1",
)


@pytest.mark.parametrize("user", [USER, None])
@pytest.mark.parametrize("inside", [True, False])
def test_junk_is_answered_and_never_breaks_a_page(client: Client, user: str | None, inside: bool) -> None:
    if user is None:
        client.post("/logout")
    for route in SITE.hosts[HOST].routes:
        if route.pattern in ("/logout", "/login"):
            continue
        pattern = route.pattern.replace("/<space>/<project>", HERBARIUM) if inside else route.pattern
        for junk in JUNK:
            path = re.sub(r"<[^>]+>", junk or "1", pattern)
            given = urlencode(dict.fromkeys(FIELDS, junk))
            assert client.world.answer(route.method, HOST, path, given, given).status < 500


def test_there_are_tasks_of_each_kind() -> None:
    assert len(MINE) >= 30
    templates = {each.template.id: each.template for each in MINE}.values()
    assert len(templates) >= 11
    kinds = [(template.answer is not None, template.url is not None, template.changes != ()) for template in templates]
    assert all(map(any, kinds))
    assert all(map(any, zip(*kinds, strict=True)))


@pytest.mark.parametrize("name", [task.id for task in MINE])
def test_doing_nothing_is_no_success_and_the_path_can_be_told(client: Client, name: str) -> None:
    one_task = list_tasks()[name]
    assert not client.done(one_task, "", one_task.start)
    assert one_task.path(client.world.outcome().before)


def test_titles_and_names_in_tasks_mean_one_thing_each(client: Client) -> None:
    for each in MINE:
        if each.template.id in ("open-issue", "milestone", "new-project", "new-group"):
            continue
        if "title" in each.values:
            found = client.rows("SELECT kind FROM item WHERE title = ?", each.values["title"])
            assert len(found) == len({row["kind"] for row in found}) > 0
        if "name" in each.values:
            assert len(client.rows("SELECT 1 FROM person WHERE name = ?", each.values["name"])) == 1


def test_the_busiest_of_a_project_is_one_person(client: Client) -> None:
    for each in MINE:
        if each.template.id == "busiest":
            select = """SELECT count(*) AS number FROM revision JOIN project ON project.id = project
                WHERE space || '/' || project.path = ? GROUP BY author ORDER BY 1 DESC"""
            first, second, *_ = client.rows(select, each.values["project"])
            assert first != second


def test_a_task_is_done_by_what_it_asks_for_and_nothing_else(client: Client) -> None:
    client.post(f"{BUS}/star")
    assert client.done(task("star/0"))
    assert not client.done(task("star/1"))
    client.post("/profile", name="Ida Moss", status="Busy")
    assert not client.done(task("star/0"))


def test_a_label_must_be_on_the_issue_that_was_opened(client: Client) -> None:
    title = "Ferns are listed as mosses"
    client.post(f"{HERBARIUM}/issues/new", title=title, description="Three of them at least.")
    bug = """(SELECT label.id FROM label JOIN project ON project.id = project
        WHERE project.path = 'herbarium' AND label.name = 'bug')"""
    other = "(SELECT max(id) - 1 FROM item)"
    with client.world._open(SITE) as db:
        db.execute(f"INSERT INTO item_label VALUES ({other}, {bug})")
    assert not client.done(task("open-issue/0"))
    with db:
        db.execute(f"UPDATE item_label SET item = (SELECT max(id) FROM item) WHERE label = {bug} AND item = {other}")
    assert client.done(task("open-issue/0"))


def test_what_is_not_allowed_asks_for_the_answer_and_for_no_change(client: Client) -> None:
    assert client.done(task("not-allowed/0"), "n/a")
    client.post(f"{BUS}/star")
    assert not client.done(task("not-allowed/0"), "n/a")
