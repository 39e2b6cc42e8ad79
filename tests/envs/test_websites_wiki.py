from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from agym.envs.websites.catalog import list_tasks
from agym.envs.websites.hosting import SiteReply, SiteWorld
from agym.envs.websites.wiki import SITE
from agym.envs.websites.wiki.markup import (
    build_address,
    list_categories,
    list_facts,
    read_fact,
    split_sections,
    strip_marks,
)
from agym.envs.websites.wiki.seed import USER


class Reader:
    """Somebody who reads and writes, without a browser; follows where pages send them."""

    def __init__(self) -> None:
        self.world = SiteWorld((SITE,))

    def get(self, path: str, **query: object) -> SiteReply:
        return self.world.answer("GET", "wiki.test", path, urlencode(query), "")

    def post(self, path: str, **form: object) -> SiteReply:
        reply = self.world.answer("POST", "wiki.test", path, "", urlencode(form))
        return self.get(reply.to) if reply.to else reply

    def changed(self) -> set[str]:
        return set(self.world.outcome().changes)


@pytest.fixture
def reader() -> Reader:
    return Reader()


# --- how pages are written -----------------------------------------------------------------------------------------

TEXT = """@ Height: 12 m
@ Near: [[Skerrow]]

'''Old Light''' is a lighthouse near [[Skerrow]].

== History ==
* lit in 1810
* out in 1950

^ Year ^ Keeper ^
| 1810 | Ann |

[[Category:Lighthouses]]"""


def known(title: str) -> bool:
    return title == "Skerrow"


def test_a_page_has_facts_sections_and_categories() -> None:
    beginning, history = split_sections(TEXT)
    assert list_facts(TEXT, known)[0] == ("Height", "12 m")
    assert read_fact(TEXT, "Near") == "Skerrow"
    assert list_categories(TEXT) == ["Lighthouses"]
    assert (beginning.heading, history.heading) == ("", "History")
    assert "\n\n".join((beginning.text, history.text)) == TEXT


def test_each_mark_becomes_what_it_stands_for() -> None:
    beginning, history = (part.html(known) for part in split_sections(TEXT))
    assert beginning == '<p><b>Old Light</b> is a lighthouse near <a href="/wiki/Skerrow">Skerrow</a>.</p>'
    assert "<ul><li>lit in 1810</li><li>out in 1950</li></ul>" in history
    assert "<tr><th>Year</th><th>Keeper</th></tr><tr><td>1810</td><td>Ann</td></tr>" in history
    assert strip_marks("'''Old''' [[Light]]\n| 1 | 2 |") == "Old Light 1 2"


def test_a_link_to_no_page_offers_to_write_it() -> None:
    (part,) = split_sections("See [[New Light]] by [[User:ann]].")
    assert 'class="missing" href="/edit/New_Light"' in part.html(known)
    assert '<a href="/user/ann">ann</a>' in part.html(known)


@pytest.mark.parametrize("text", ["<script>x</script>", "@ <i>: <q>", "[[<a>]]", "'''<u>'''", "| <dd> |", "== <h> =="])
def test_what_is_written_is_never_html(text: str) -> None:
    shown = [part.html(known) for part in split_sections(text)] + [value for _, value in list_facts(text, known)]
    assert not {"<script>", "<i>", "<q>", "<a>", "<u>", "<dd>", "<h>"} & set(re.findall("<[^>]*>", "".join(shown)))


def test_a_title_is_an_address_and_back() -> None:
    assert build_address("St Averil Light") == "/wiki/St_Averil_Light"
    assert build_address("Who? Me/You", "talk") == "/talk/Who%3F_Me%2FYou"


# --- the data ------------------------------------------------------------------------------------------------------


def test_what_pages_say_agrees_with_what_lists_say(reader: Reader) -> None:
    db = reader.world.outcome().before["wiki"]
    texts = dict(tuple(row) for row in db.execute("SELECT title, text FROM current"))
    for title, text in texts.items():
        if "Lighthouses" in list_categories(text):
            assert (
                f"| [[{title}]] | [[{read_fact(text, 'Near')}]] | {read_fact(text, 'Built')} |"
                in texts["List of lighthouses"]
            )
        if "Towns" in list_categories(text):
            assert f"[[{title}]]" in texts[read_fact(text, "Island")]


def test_every_link_leads_to_a_page(reader: Reader) -> None:
    db = reader.world.outcome().before["wiki"]
    for (title,) in db.execute("SELECT title FROM pages").fetchall():
        assert 'class="missing"' not in reader.get(build_address(title)).html, title


def test_nothing_was_written_before_its_author_came_or_after_today(reader: Reader) -> None:
    db = reader.world.outcome().before["wiki"]
    for table in ("revisions", "comments"):
        early = f"SELECT count(*) FROM {table} JOIN users ON author = name WHERE day < joined OR day > '2026-03-02'"
        assert db.execute(early).fetchone()[0] == 0


# --- reading -------------------------------------------------------------------------------------------------------


def test_the_page_looked_for_by_its_title_comes_first(reader: Reader) -> None:
    found = reader.get("/search", q="hask").html
    assert found.index('href="/wiki/Hask"') < found.index('href="/wiki/Hask_Mining_Museum"')
    assert "No page" not in found
    assert "0 pages have" in reader.get("/search", q="<b>").html


def test_an_old_revision_is_shown_as_it_was(reader: Reader) -> None:
    db = reader.world.outcome().before["wiki"]
    number = db.execute("SELECT min(id) FROM revisions").fetchone()[0]
    assert "This is how the page was on" in reader.get(f"/old/{number}").html


@pytest.mark.parametrize("path", ["/wiki/Nowhere", "/old/999999", "/old/x", "/user/nobody", "/category/Nothing", "/x"])
def test_what_is_not_there_is_told(reader: Reader, path: str) -> None:
    assert reader.get(path).status == 404


# --- writing -------------------------------------------------------------------------------------------------------


def test_a_section_is_changed_and_the_rest_stays(reader: Reader) -> None:
    page = reader.post("/edit/Skerrow", section="1", text="== History ==\nLong <b>.", summary="Shorter").html
    assert "Long &lt;b&gt;." in page
    assert "Market day" in page
    assert reader.changed() == {"wiki.revisions"}
    assert "Shorter" in reader.get("/history/Skerrow").html


def test_saving_without_a_change_is_no_revision(reader: Reader) -> None:
    db = reader.world.outcome().before["wiki"]
    text = db.execute("SELECT text FROM current WHERE title = 'Skerrow'").fetchone()[0]
    reader.post("/edit/Skerrow", text=text)
    assert reader.changed() == set()


def test_a_renamed_page_is_found_by_both_titles(reader: Reader) -> None:
    reader.post("/rename/Skerrow", title="New Skerrow")
    assert "was called Skerrow before" in reader.get("/wiki/Skerrow").html
    assert reader.get("/wiki/New_Skerrow").status == 200
    assert 'class="missing"' not in reader.get("/wiki/Great_Tolven").html


@pytest.mark.parametrize("title", ["", "a" * 81, "a[b]", "User:x", "Category:x", "a/b"])
def test_a_title_that_would_mean_something_else_is_refused(reader: Reader, title: str) -> None:
    assert reader.post("/new", title=title).status == 400
    assert reader.post("/rename/Skerrow", title=title).status == 400


def test_stewards_alone_change_protected_pages(reader: Reader) -> None:
    assert reader.post("/edit/House_rules", text="None.").status == 403
    reader.post("/logout")
    reader.post("/login", name="tidewatch", password="tidewatch-pass")
    assert "None." in reader.post("/edit/House_rules", text="None.").html


def test_who_is_not_logged_in_reads_only(reader: Reader) -> None:
    assert "Log in" in reader.post("/logout").html
    assert "Edit" not in reader.get("/wiki/Skerrow").html
    for path in ("/edit/Skerrow", "/watch/Skerrow", "/talk/Skerrow", "/add/Skerrow", "/new"):
        assert reader.post(path, text="x", heading="x", title="x").status == 403
    assert reader.get("/watchlist").status == 403
    assert reader.post("/login", name=USER, password="guess").status == 403
    assert reader.changed() == set()


# --- tasks ---------------------------------------------------------------------------------------------------------


def test_something_else_changed_as_well_is_no_success(reader: Reader) -> None:
    task = list_tasks()["wiki/watch/0"]
    reader.post("/watch/Kite_Sunday")
    assert task.done("", "", reader.world.outcome())
    reader.post("/talk/Skerrow", text="Hello")
    assert not task.done("", "", reader.world.outcome())


def test_the_wrong_words_are_no_success(reader: Reader) -> None:
    task = list_tasks()["wiki/section/0"]
    reader.post("/add/Lark_Down", heading="Weather", text="Fog is rare.")
    assert not task.done("", "", reader.world.outcome())
