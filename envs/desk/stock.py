"""Words that worlds are made of: people, places, goods. All are our own."""

from __future__ import annotations

from collections.abc import Mapping

# values only: everything here is public

FIRST_NAMES = ("Ada", "Bruno", "Clara", "Dario", "Edith", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Karla", "Leon")
SURNAMES: Mapping[bool, tuple[str, ...]] = {
    False: ("Alder", "Birchall", "Cobb", "Dunmore", "Easton", "Farrow", "Garland", "Hatch", "Ingram", "Jessop", "Kerr"),
    True: ("Larkin", "Mossman", "Norwood", "Oakes", "Penrose"),
}
"""By whether a task is held out."""
STREETS = ("Mill Lane", "Harbour Road", "Station Street", "Orchard Way", "Castle Hill", "Weaver Row", "Elm Grove")
CITIES = ("Northam", "Eastbury", "Wexcombe", "Stonely", "Marford", "Ashwick", "Dunholt", "Carrow")
PRODUCTS: Mapping[str, tuple[int, tuple[str, str, str, str]]] = {
    "rain jacket": (8900, ("small", "medium", "large", "extra large")),
    "wool jumper": (6450, ("small", "medium", "large", "extra large")),
    "trail shoes": (10900, ("size 38", "size 40", "size 42", "size 44")),
    "sleeping bag": (12500, ("grey", "green", "blue", "orange")),
    "rucksack": (7900, ("grey", "green", "blue", "orange")),
    "water bottle": (1850, ("grey", "green", "blue", "orange")),
    "head lamp": (3490, ("white", "black", "red", "yellow")),
    "camp stove": (5475, ("one burner", "two burners", "three burners", "four burners")),
    "tent": (21900, ("one person", "two persons", "three persons", "four persons")),
    "hiking socks": (1295, ("small", "medium", "large", "extra large")),
}
"""Price in cents of the first variant, and the variants."""
STEP_CENTS = 150
"""What each further variant costs more."""
