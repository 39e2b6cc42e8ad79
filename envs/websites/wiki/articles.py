"""What the wiki of the Tolven Isles says: tables of what there is on the isles, and sentences about it.

What enters: chance, for figures. What leaves: `Article`s, in the wiki's own way of writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

__all__ = ["Article", "articles"]


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


# --- what there is ---

_ISLANDS: Mapping[str, str] = {
    "Great Tolven": "the largest of the isles, with moorland in the north and orchards along the south coast",
    "Sarn": "a long, narrow island whose western cliffs rise straight from the sea",
    "Little Merrow": "a low, green island of salt marsh and sheep pasture",
    "Hask": "a rocky island once known for its copper",
    "Ellery": "a small island with a single village and many more seals than people",
    "Brandle": "the youngest of the isles, a bar of dunes that the currents still move",
}
_TOWNS: Mapping[str, tuple[str, str]] = {
    "Tolven Harbour": ("Great Tolven", "the seat of the Isles Council and the port of most ferries"),
    "Oxmere": ("Great Tolven", "a market town beside a shallow lake"),
    "Pellworth": ("Great Tolven", "a fishing town that became known for its printing works"),
    "Cawdle Bridge": ("Great Tolven", "a village at the only stone bridge over the Cawdle"),
    "Skerrow": ("Great Tolven", "a harbour town on the windy north coast"),
    "Sarnmouth": ("Sarn", "the island's main town, built around a deep natural harbour"),
    "Wick Hollow": ("Sarn", "a weaving village in a sheltered valley"),
    "Dunsea": ("Sarn", "a seaside town with a long promenade"),
    "Merrow Quay": ("Little Merrow", "a row of painted houses along a single quay"),
    "Fenlow": ("Little Merrow", "a farming village behind the sea wall"),
    "Haskport": ("Hask", "a former mining port"),
    "Upper Hask": ("Hask", "the highest village of the isles"),
    "Ellerby": ("Ellery", "the only village of its island"),
    "Brandle Sands": ("Brandle", "a summer resort of wooden houses on stilts"),
}
_LIGHTHOUSES: Mapping[str, str] = {
    "Harrow Light": "Tolven Harbour",
    "Cold Point Light": "Skerrow",
    "Old Pellworth Light": "Pellworth",
    "Gannet Rock Light": "Sarnmouth",
    "Long Tooth Light": "Dunsea",
    "Sallow Head Light": "Merrow Quay",
    "St Averil Light": "Fenlow",
    "Hask Mole Light": "Haskport",
    "Three Sisters Light": "Ellerby",
    "Widow Ledge Light": "Brandle Sands",
}
_HILLS: Mapping[str, str] = {
    "Corran Top": "Great Tolven",
    "Great Barrow": "Great Tolven",
    "Hessen Hill": "Great Tolven",
    "Lark Down": "Sarn",
    "Wether Crag": "Sarn",
    "Merrow Beacon": "Little Merrow",
    "The Anvil": "Hask",
    "Sheepfold Tor": "Hask",
}
_RIVERS: Mapping[str, tuple[str, str]] = {
    "Aldwater": ("Corran Top", "Tolven Harbour"),
    "Cawdle": ("Great Barrow", "Pellworth"),
    "Oxbeck": ("Hessen Hill", "Oxmere"),
    "Sarn Water": ("Wether Crag", "Sarnmouth"),
    "Brenn": ("The Anvil", "Haskport"),
}
_FERRIES: Mapping[str, tuple[str, str, str]] = {
    "Northern Crossing": ("Tolven Harbour", "Sarnmouth", "Isles Steam Packet"),
    "Merrow Line": ("Tolven Harbour", "Merrow Quay", "Isles Steam Packet"),
    "Hask Packet": ("Pellworth", "Haskport", "Hask and Brandle Ferries"),
    "Ellery Boat": ("Sarnmouth", "Ellerby", "Quill Brothers"),
    "Sands Ferry": ("Haskport", "Brandle Sands", "Hask and Brandle Ferries"),
    "Skerrow Shuttle": ("Skerrow", "Dunsea", "Quill Brothers"),
}
_PEOPLE: Mapping[str, tuple[str, str, str]] = {
    "Averil Stroud": ("engineer", "Oxmere", "She drew the plans of [[Cold Point Light]] and [[Gannet Rock Light]]."),
    "Benet Cray": ("painter", "Sarnmouth", "His views of [[Dunsea]] in winter hang in the [[Museum of Lights]]."),
    "Cora Thistlewood": ("botanist", "Fenlow", "She listed four hundred plants of the marshes of [[Little Merrow]]."),
    "Dorrit Vane": ("weaver", "Wick Hollow", "The [[Sarn Weaving House]] began in her kitchen."),
    "Edric Mallow": ("printer", "Pellworth", "He founded the [[Pellworth Print Works]]."),
    "Fenella Garrick": ("composer", "Dunsea", "Her song cycle follows the crossing of the [[Northern Crossing]]."),
    "Gorman Tull": ("miner", "Upper Hask", "He led the strike that shortened the working day in the pits of [[Hask]]."),
    "Hester Quill": ("captain", "Ellerby", "She ran the [[Ellery Boat]] through every winter but one."),
    "Ivo Pascoe": ("cartographer", "Tolven Harbour", "His map was the first to show [[Brandle]] where it was."),
    "Jessamy Orr": ("ornithologist", "Merrow Quay", "She built the hide that became the [[Merrow Bird Observatory]]."),
    "Kester Lowe": ("architect", "Cawdle Bridge", "He rebuilt the quays of [[Tolven Harbour]] after the great flood."),
    "Lettice Marr": ("poet", "Skerrow", "Her long poem is set on the slopes of [[Corran Top]]."),
}
_FESTIVALS: Mapping[str, tuple[str, str, str]] = {
    "Herring Fair": ("Skerrow", "September", "Boats are blessed, and herring is grilled along the whole quay."),
    "Lantern Week": (
        "Sarnmouth",
        "November",
        "Each street builds one lantern, carried to the harbour on the last evening.",
    ),
    "Wool Days": ("Wick Hollow", "May", "Shearing, dyeing and weaving are shown, and fleeces are sold by weight."),
    "Barley Night": ("Oxmere", "August", "The first loaf of the harvest is cut at midnight on the market square."),
    "Regatta of the Isles": (
        "Tolven Harbour",
        "June",
        "Crews of every island row six miles around the harbour islands.",
    ),
    "Kite Sunday": ("Brandle Sands", "July", "Kites must be made by whoever flies them."),
}
_MUSEUMS: Mapping[str, tuple[str, str]] = {
    "Tolven Maritime Museum": ("Tolven Harbour", "boats, charts and the logs of the old packet ships"),
    "Museum of Lights": ("Dunsea", "lenses, lamps and the tools of lighthouse keepers"),
    "Sarn Weaving House": ("Wick Hollow", "looms, patterns and a garden of dye plants"),
    "Pellworth Print Works": ("Pellworth", "presses, type and posters, all still in use"),
    "Hask Mining Museum": ("Haskport", "tools of the copper miners, and a gallery to walk through"),
    "Merrow Bird Observatory": ("Merrow Quay", "the rings, drawings and diaries of three generations of bird watchers"),
}
_SPARED = ("two inns", "the customs house", "a row of boat sheds", "the mill")
_BESIDE = ("cottage hospital", "bakery older than the school", "cinema", "boatyard", "theatre in a barn")
_FLASHES = ("one white flash", "two white flashes", "three red flashes")
_TOPS = ("There is a cairn on the top.", "Sheep graze up to the top.", "The top is bare rock.")
_AGES = ("twelve", "thirteen", "fourteen")
_TRADES = ("cooper", "schoolmaster", "net maker", "ferryman", "baker")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


# --- what is said about it ---


@dataclass(slots=True)
class _Facts:
    """Figures by title, so that articles agree with each other."""

    rng: Random
    known: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self, title: str, **facts: str) -> dict[str, str]:
        named = {name.replace("_", " ").capitalize(): value for name, value in facts.items()}
        self.known[title] = named
        return named

    def number(self, title: str, name: str) -> int:
        return int(self.known[title][name].split()[0].replace(",", ""))


def articles(rng: Random) -> list[Article]:
    facts = _Facts(rng)
    made = [article for kind in _KINDS for article in kind(facts)]
    return [*made, *_lists(facts), *_about(made)]


def _link(title: str) -> str:
    return f"[[{title}]]"


def _towns(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for title, (island, what) in _TOWNS.items():
        population = rng.randrange(2100, 9800) if island == "Great Tolven" else rng.randrange(240, 2900)
        founded, day = rng.randrange(1080, 1790), rng.choice(_DAYS)
        known = facts.note(
            title,
            island=_link(island),
            population=f"{population:,}",
            founded=str(founded),
            market_day=day,
            post_code=f"TI {rng.randrange(10, 99)}",
        )
        lead = f"'''{title}''' on {_link(island)} is {what}. At the last count it had {population:,} people."
        history = (
            f"{title} is first named in a charter of {founded}. A fire in {founded + rng.randrange(60, 200)} spared"
            f" only the chapel and {rng.choice(_SPARED)}, and most of what is seen today was built after it."
        )
        life = (
            f"The market is held every {day} from {rng.choice(('seven', 'eight', 'nine'))} in the morning."
            f" There is a library, a school with {rng.randrange(18, 420)} pupils, and a {rng.choice(_BESIDE)}."
        )
        yield Article(
            title=title,
            facts=known,
            lead=lead,
            sections=(("History", history), ("Life", life), *_ways(title)),
            categories=("Towns", f"{island} places"),
        )


def _ways(town: str) -> list[tuple[str, str]]:
    lines = [
        f"* {_link(name)} to {_link(end if start == town else start)}"
        for name, (start, end, _) in _FERRIES.items()
        if town in (start, end)
    ]
    return [("Getting there", "\n".join(lines))] if lines else []


def _islands(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for title, what in _ISLANDS.items():
        towns = [town for town, (island, _) in _TOWNS.items() if island == title]
        population = sum(facts.number(town, "Population") for town in towns)
        area = rng.randrange(140, 260) if title == "Great Tolven" else rng.randrange(4, 78)
        hills = [hill for hill, island in _HILLS.items() if island == title]
        known = facts.note(
            title, area=f"{area} km²", population=f"{population:,}", coast=f"{area // 2 + rng.randrange(9, 20)} km"
        )
        lead = f"'''{title}''' is {what}. It is one of the six [[Tolven Isles]]."
        places = "\n".join(f"* {_link(town)}, {_TOWNS[town][1]}" for town in towns)
        heights = "\n".join(f"* {_link(hill)}" for hill in hills) or "No point of the island is above thirty metres."
        yield Article(
            title=title,
            facts=known,
            lead=lead,
            sections=(("Towns and villages", places), ("Hills", heights)),
            categories=("Islands",),
        )


def _lighthouses(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for (title, town), height in zip(_LIGHTHOUSES.items(), rng.sample(range(11, 49), len(_LIGHTHOUSES)), strict=True):
        built = rng.randrange(1782, 1911)
        known = facts.note(
            title,
            near=_link(town),
            built=str(built),
            height=f"{height} m",
            range=f"{rng.randrange(8, 27)} nautical miles",
            automated=str(rng.randrange(1958, 1997)),
        )
        flashes = f"{rng.choice(_FLASHES)} every {rng.randrange(5, 30)} seconds"
        lead = f"'''{title}''' is a lighthouse near {_link(town)}. It stands {height} metres tall and shows {flashes}."
        history = (
            f"The light was first lit in {built}, after {rng.choice(('three', 'five', 'nine'))} ships were lost in one"
            f" winter. It burned {rng.choice(('colza oil', 'coal', 'paraffin'))} until {built + rng.randrange(20, 60)}."
            f" The last keeper left in {known['Automated']}, when the light was automated."
        )
        visits = (
            f"The tower is open on {rng.choice(_DAYS)}s from {rng.choice(('Easter', 'May', 'June'))} to September."
            f" There are {height * 5 + rng.randrange(4)} steps."
        )
        yield Article(
            title=title,
            facts=known,
            lead=lead,
            sections=(("History", history), ("Visits", visits)),
            categories=("Lighthouses", f"{_TOWNS[town][0]} places"),
        )


def _hills(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for (title, island), height in zip(_HILLS.items(), rng.sample(range(96, 612), len(_HILLS)), strict=True):
        known = facts.note(title, island=_link(island), height=f"{height} m")
        lead = f"'''{title}''' is a hill on {_link(island)}, {height} metres high."
        walk = (
            f"A path from the {rng.choice(('north', 'south', 'east', 'west'))} takes about {rng.randrange(2, 9) * 20}"
            f" minutes. {rng.choice(_TOPS)}"
        )
        yield Article(
            title=title, facts=known, lead=lead, sections=(("Walking", walk),), categories=("Hills", f"{island} places")
        )


def _rivers(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for title, (source, mouth) in _RIVERS.items():
        length = rng.randrange(6, 34)
        known = facts.note(title, source=_link(source), mouth=_link(mouth), length=f"{length} km")
        lead = f"The '''{title}''' rises on {_link(source)} and ends after {length} kilometres at {_link(mouth)}."
        use = (
            f"It once drove {rng.randrange(2, 11)} mills. Otters are seen again since {rng.randrange(1996, 2019)}."
            f" Fishing needs a permit from the town hall of {_link(mouth)}."
        )
        yield Article(title=title, facts=known, lead=lead, sections=(("Use", use),), categories=("Rivers",))


def _ferries(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    lengths = rng.sample(range(25, 190, 5), len(_FERRIES))
    for (title, (start, end, operator)), minutes in zip(_FERRIES.items(), lengths, strict=True):
        known = facts.note(
            title,
            route=f"{_link(start)} to {_link(end)}",
            operator=operator,
            crossing=f"{minutes} minutes",
            sailings=f"{rng.randrange(2, 9)} a day",
            since=str(rng.randrange(1871, 1968)),
        )
        lead = (
            f"The '''{title}''' is the ferry between {_link(start)} and {_link(end)}. It is run by {operator}, and a"
            f" crossing takes {minutes} minutes."
        )
        ship = (
            f"The ship takes {rng.randrange(4, 22) * 10} passengers and {rng.randrange(0, 30)} cars."
            f" Bicycles travel {rng.choice(('free', 'for half the fare', 'only outside July and August'))}."
        )
        yield Article(title=title, facts=known, lead=lead, sections=(("On board", ship),), categories=("Ferries",))


def _people(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for title, (work, town, more) in _PEOPLE.items():
        born = rng.randrange(1795, 1925)
        died = born + rng.randrange(54, 95)
        known = facts.note(title, born=f"{born} in {_link(town)}", died=str(died), known_as=work)
        lead = (
            f"'''{title}''' ({born}–{died}) was {'an' if work[0] in 'aeiou' else 'a'} {work} from {_link(town)}. {more}"
        )
        life = (
            f"The {rng.choice(('second', 'third', 'youngest', 'eldest'))} of {rng.randrange(3, 10)} children of a"
            f" {rng.choice(_TRADES)}, {title.split()[0]} left school at {rng.choice(_AGES)}"
            f" and worked in {_link(rng.choice(sorted(_TOWNS)))} for some years."
        )
        yield Article(title=title, facts=known, lead=lead, sections=(("Life", life),), categories=("People",))


def _festivals(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for title, (town, month, what) in _FESTIVALS.items():
        since = rng.randrange(1690, 1985)
        known = facts.note(title, place=_link(town), month=month, since=str(since))
        lead = f"'''{title}''' is held each {month} in {_link(town)}. {what}"
        history = (
            f"It was first held in {since}. About {rng.randrange(4, 90) * 100:,} guests came in 2025."
            f" It was called off only in {since + rng.randrange(5, 30)}, because of"
            f" {rng.choice(('a storm', 'measles', 'a strike'))}."
        )
        yield Article(title=title, facts=known, lead=lead, sections=(("History", history),), categories=("Festivals",))


def _museums(facts: _Facts) -> Iterator[Article]:
    rng = facts.rng
    for title, (town, what) in _MUSEUMS.items():
        known = facts.note(
            title,
            place=_link(town),
            opened=str(rng.randrange(1921, 2009)),
            visitors=f"{rng.randrange(21, 480) * 100:,} in 2025",
            closed=f"{rng.choice(_DAYS)}s",
        )
        lead = f"The '''{title}''' in {_link(town)} shows {what}."
        visit = (
            f"It is open from {rng.choice(('nine', 'ten', 'eleven'))} to {rng.choice(('four', 'five', 'six'))}, but not"
            f" on {known['Closed']}. A ticket costs {rng.randrange(3, 12)} crowns; children under"
            f" {rng.choice(('six', 'ten', 'fourteen'))} pay nothing."
        )
        yield Article(title=title, facts=known, lead=lead, sections=(("Visiting", visit),), categories=("Museums",))


_KINDS: tuple[Callable[[_Facts], Iterator[Article]], ...] = (
    _towns,
    _islands,
    _lighthouses,
    _hills,
    _rivers,
    _ferries,
    _people,
    _festivals,
    _museums,
)


# --- about several ---


def _table(facts: _Facts, titles: Sequence[str], *names: str) -> str:
    rows = [f"| {' | '.join((_link(title), *(facts.known[title][name] for name in names)))} |" for title in titles]
    return "\n".join((f"^ {' ^ '.join(('Name', *names))} ^", *rows))


def _lists(facts: _Facts) -> Iterator[Article]:
    for what, titles, names in (
        ("towns", sorted(_TOWNS), ("Island", "Population", "Founded")),
        ("lighthouses", sorted(_LIGHTHOUSES), ("Near", "Built", "Height")),
        ("hills", sorted(_HILLS), ("Island", "Height")),
        ("ferries", sorted(_FERRIES), ("Route", "Operator", "Crossing")),
        ("museums", sorted(_MUSEUMS), ("Place", "Opened", "Closed")),
    ):
        lead = f"All {len(titles)} {what} of the [[Tolven Isles]]."
        yield Article(title=f"List of {what}", lead=f"{lead}\n\n{_table(facts, titles, *names)}", categories=("Lists",))


_MARKS = """\
* two square brackets around the title of a page link to it
* three apostrophes around words make them bold
* two equals signs around words make a heading
* a star begins an item of a list
* an at sign begins a fact, such as Height: 12 m, shown in the box of facts"""


def _about(made: Sequence[Article]) -> Iterator[Article]:
    islands = "\n".join(f"* {_link(name)}" for name in _ISLANDS)
    lists = "\n".join(f"* [[List of {what}]]" for what in ("towns", "lighthouses", "hills", "ferries", "museums"))
    yield Article(
        title="Tolven Isles",
        lead=(
            "The '''Tolven Isles''' are six inhabited islands with one council, one newspaper and rather more opinions."
            " The council meets in [[Tolven Harbour]]."
        ),
        sections=(("Islands", islands), ("Lists", lists)),
        categories=("Islands",),
    )
    yield Article(
        title="House rules",
        lead=(
            "Write what you know, say where you know it from, and be kind on talk pages. Pages are renamed only where"
            " the name is wrong. Only stewards delete pages or edit this one."
        ),
        sections=(("Stewards", "* [[User:tidewatch]]\n* [[User:ledgerkeeper]]"),),
        categories=("About this wiki",),
        protected=True,
    )
    yield Article(
        title="How to write",
        lead="A page is plain text, with a few marks. An empty line begins a new paragraph.",
        sections=(
            (
                "Marks",
                _MARKS,
            ),
        ),
        categories=("About this wiki",),
        protected=True,
    )
