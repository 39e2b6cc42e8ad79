"""Write the articles of the wiki of the Tolven Isles: the sentences of `articles.yaml` with figures drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import yaml

__all__ = ["Article", "write_articles"]

_Values: TypeAlias = dict[str, Any]

_GREATEST = "Great Tolven"
_SPREAD: Mapping[str, tuple[str, range]] = {
    "lighthouses": ("height", range(11, 49)),
    "hills": ("height", range(96, 612)),
    "ferries": ("minutes", range(25, 190, 5)),
}
"""Figures that no two of a kind share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    lead: str
    sections: Sequence[tuple[str, str]] = ()
    categories: Sequence[str] = ()
    protected: bool = False

    @property
    def text(self) -> str:
        facts = [f"@ {name}: {value}" for name, value in self.facts.items()]
        sections = [f"== {heading} ==\n{text}" for heading, text in self.sections]
        categories = [f"[[Category:{name}]]" for name in self.categories]
        blocks = ("\n".join(facts), self.lead, *sections, "\n".join(categories))
        return "\n\n".join(filter(None, blocks))


def write_articles(rng: Random) -> list[Article]:
    content = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    isles = _Isles(rng, content["things"], content["choices"])
    written = {kind: [*_write_kind(isles, kind, how)] for kind, how in content["kinds"].items()}
    return [
        *(article for kind in written.values() for article in kind),
        *(_write_list(kind, written[kind], names) for kind, names in content["lists"].items()),
        *(_write(page, {"title": title}) for title, page in content["about"].items()),
    ]


def _write_kind(isles: _Isles, kind: str, how: Mapping[str, Any]) -> Iterator[Article]:
    things = isles.things[kind]
    name, numbers = _SPREAD.get(kind, ("", range(0)))
    spread = isles.rng.sample(numbers, len(things)) if name else [0] * len(things)
    for (title, thing), number in zip(things.items(), spread, strict=True):
        known = {**thing, "title": title, name: number}
        known |= _DRAWN[kind](isles, known)
        isles.known[title] = known
        yield _write(how, known)


def _write(how: Mapping[str, Any], known: _Values) -> Article:
    sections = [(heading, text.format_map(known)) for heading, text in how["sections"].items()]
    return Article(
        title=known["title"],
        facts={name: text.format_map(known) for name, text in how.get("facts", {}).items()},
        lead=how["lead"].format_map(known),
        sections=[(heading, text) for heading, text in sections if text],
        categories=[name.format_map(known) for name in how["categories"]],
        protected=how.get("protected", False),
    )


def _write_list(kind: str, articles: Sequence[Article], names: Sequence[str]) -> Article:
    listed = sorted(articles, key=lambda article: article.title)
    rows = [" | ".join((f"[[{each.title}]]", *(each.facts[name] for name in names))) for each in listed]
    table = "\n".join((f"^ {' ^ '.join(('Name', *names))} ^", *(f"| {row} |" for row in rows)))
    lead = f"All {len(listed)} {kind} of the [[Tolven Isles]].\n\n{table}"
    return Article(title=f"List of {kind}", lead=lead, categories=("Lists",))


# --- figures, in the order in which they are drawn ---


@dataclass(frozen=True, slots=True)
class _Isles:
    rng: Random
    things: Mapping[str, Mapping[str, _Values]]
    choices: Mapping[str, Sequence[str]]
    known: dict[str, _Values] = field(default_factory=dict)
    """By title, so that articles agree with each other."""

    def choose(self, name: str) -> str:
        return self.rng.choice(self.choices[name])

    def draw(self, low: int, high: int) -> int:
        return self.rng.randrange(low, high)


def _draw_town(isles: _Isles, town: _Values) -> _Values:
    title, ferries = town["title"], isles.things["ferries"].items()
    ends = {name: [end for end in (each["start"], each["end"]) if end != title] for name, each in ferries}
    return {
        "population": isles.draw(2100, 9800) if town["island"] == _GREATEST else isles.draw(240, 2900),
        "founded": (founded := isles.draw(1080, 1790)),
        "day": isles.choose("days"),
        "code": isles.draw(10, 99),
        "fire": founded + isles.draw(60, 200),
        "spared": isles.choose("spared"),
        "hour": isles.choose("market_hours"),
        "pupils": isles.draw(18, 420),
        "beside": isles.choose("beside"),
        "ways": "\n".join(f"* [[{name}]] to [[{end[0]}]]" for name, end in ends.items() if len(end) == 1),
    }


def _draw_island(isles: _Isles, island: _Values) -> _Values:
    title = island["title"]
    towns = {name: town for name, town in isles.things["towns"].items() if town["island"] == title}
    hills = [name for name, hill in isles.things["hills"].items() if hill["island"] == title]
    return {
        "population": sum(isles.known[name]["population"] for name in towns),
        "area": (area := isles.draw(140, 260) if title == _GREATEST else isles.draw(4, 78)),
        "coast": area // 2 + isles.draw(9, 20),
        "towns": "\n".join(f"* [[{name}]], {town['what']}" for name, town in towns.items()),
        "hills": "\n".join(f"* [[{name}]]" for name in hills) or "No point of the island is above thirty metres.",
    }


def _draw_lighthouse(isles: _Isles, light: _Values) -> _Values:
    return {
        "island": isles.things["towns"][light["town"]]["island"],
        "built": (built := isles.draw(1782, 1911)),
        "range": isles.draw(8, 27),
        "automated": isles.draw(1958, 1997),
        "flashes": isles.choose("flashes"),
        "interval": isles.draw(5, 30),
        "ships": isles.choose("ships"),
        "fuel": isles.choose("fuels"),
        "until": built + isles.draw(20, 60),
        "day": isles.choose("days"),
        "season": isles.choose("seasons"),
        "steps": light["height"] * 5 + isles.draw(0, 4),
    }


def _draw_hill(isles: _Isles, hill: _Values) -> _Values:
    return {"side": isles.choose("sides"), "minutes": isles.draw(2, 9) * 20, "top": isles.choose("tops")}


def _draw_river(isles: _Isles, river: _Values) -> _Values:
    return {"length": isles.draw(6, 34), "mills": isles.draw(2, 11), "otters": isles.draw(1996, 2019)}


def _draw_ferry(isles: _Isles, ferry: _Values) -> _Values:
    return {
        "sailings": isles.draw(2, 9),
        "since": isles.draw(1871, 1968),
        "passengers": isles.draw(4, 22) * 10,
        "cars": isles.draw(0, 30),
        "bicycles": isles.choose("bicycles"),
    }


def _draw_person(isles: _Isles, person: _Values) -> _Values:
    return {
        "article": "an" if person["work"][0] in "aeiou" else "a",
        "first_name": person["title"].split()[0],
        "born": (born := isles.draw(1795, 1925)),
        "died": born + isles.draw(54, 95),
        "place": isles.choose("places"),
        "siblings": isles.draw(3, 10),
        "trade": isles.choose("trades"),
        "age": isles.choose("ages"),
        "elsewhere": isles.rng.choice(sorted(isles.things["towns"])),
    }


def _draw_festival(isles: _Isles, festival: _Values) -> _Values:
    return {
        "since": (since := isles.draw(1690, 1985)),
        "guests": isles.draw(4, 90) * 100,
        "called_off": since + isles.draw(5, 30),
        "hindrance": isles.choose("hindrances"),
    }


def _draw_museum(isles: _Isles, museum: _Values) -> _Values:
    return {
        "opened": isles.draw(1921, 2009),
        "visitors": isles.draw(21, 480) * 100,
        "closed": isles.choose("days"),
        "opening": isles.choose("opening"),
        "closing": isles.choose("closing"),
        "crowns": isles.draw(3, 12),
        "children": isles.choose("children"),
    }


_DRAWN: Mapping[str, Callable[[_Isles, _Values], _Values]] = {
    "towns": _draw_town,
    "islands": _draw_island,
    "lighthouses": _draw_lighthouse,
    "hills": _draw_hill,
    "rivers": _draw_river,
    "ferries": _draw_ferry,
    "people": _draw_person,
    "festivals": _draw_festival,
    "museums": _draw_museum,
}
