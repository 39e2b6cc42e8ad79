"""Small functions with what they should do, ways to be wrong, and calls with their values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FUNCTIONS", "Function", "write_literal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    name: str
    source: str
    right: str
    """A part of the source that mutants have in another form."""
    wrong: tuple[str, str]
    shown: tuple[str, str]
    """A call and its value, as in the docstring; both wrong forms give another value."""
    weak: tuple[str, str]
    """A call that all forms answer alike."""
    hidden: tuple[tuple[str, str], ...]

    def mutant(self, number: int) -> str:
        return self.source.replace(self.right, self.wrong[number])


def write_literal(value: str) -> str:
    """Write a printed value as a program would have it."""
    is_text = value not in ("True", "False") and not value.lstrip("-").replace(".", "").isdigit()
    return repr(value) if is_text else value


def _make(
    head: str,
    what: str,
    body: str,
    right: str,
    wrong: tuple[str, str],
    shown: tuple[str, str],
    weak: tuple[str, str],
    *hidden: tuple[str, str],
) -> Function:
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    source = f'def {head}:\n    """{what} {shown[0]} is {write_literal(shown[1])}."""\n{lines}\n'
    name = head.partition("(")[0]
    return Function(name=name, source=source, right=right, wrong=wrong, shown=shown, weak=weak, hidden=hidden)


FUNCTIONS: tuple[Function, ...] = (
    _make(
        "total(prices)",
        "Add up the prices:",
        "result = 0\nfor price in prices:\n    result += price\nreturn result",
        "result += price",
        ("result = price", "result -= price"),
        ("total([4, 5])", "9"),
        ("total([])", "0"),
        ("total([7, 1, 30])", "38"),
        ("total([12])", "12"),
    ),
    _make(
        "largest(values)",
        "Find the largest value:",
        "best = values[0]\nfor value in values:\n    if value > best:\n        best = value\nreturn best",
        "value > best",
        ("value < best", "value > 0"),
        ("largest([3, 8, 2])", "8"),
        ("largest([5])", "5"),
        ("largest([-4, -9])", "-4"),
        ("largest([6, 17, 16])", "17"),
    ),
    _make(
        "average(values)",
        "The mean of some values:",
        "return sum(values) / len(values)",
        "/ len(values)",
        ("/ (len(values) + 1)", "/ 2"),
        ("average([1, 2, 6])", "3.0"),
        ("average([0])", "0.0"),
        ("average([10, 20, 40, 50])", "30.0"),
        ("average([8])", "8.0"),
    ),
    _make(
        "clamp(value, low, high)",
        "The value, but no less than low and no more than high:",
        "return max(low, min(high, value))",
        "max(low, min(high, value))",
        ("min(low, max(high, value))", "max(low, value)"),
        ("clamp(12, 3, 9)", "9"),
        ("clamp(3, 3, 3)", "3"),
        ("clamp(1, 4, 6)", "4"),
        ("clamp(25, 10, 20)", "20"),
        ("clamp(15, 10, 20)", "15"),
    ),
    _make(
        "count_vowels(text)",
        "How many letters are vowels:",
        'return sum(letter in "aeiou" for letter in text)',
        '"aeiou"',
        ('"aeio"', '"aeuy"'),
        ("count_vowels('you go out')", "5"),
        ("count_vowels('cat')", "1"),
        ("count_vowels('bulb furious')", "5"),
        ("count_vowels('pistol')", "2"),
    ),
    _make(
        "initials(name)",
        "The first letter of each word:",
        'return "".join(word[0] for word in name.split())',
        "word[0]",
        ("word[1]", "word[-1]"),
        ("initials('Ann Lee Fox')", "ALF"),
        ("initials('')", ""),
        ("initials('Max Otto Zahn')", "MOZ"),
        ("initials('Ida Bo')", "IB"),
    ),
    _make(
        "reverse_words(text)",
        "The words in reverse order:",
        'return " ".join(text.split()[::-1])',
        "[::-1]",
        ("[::1]", "[1:]"),
        ("reverse_words('red green blue')", "blue green red"),
        ("reverse_words('')", ""),
        ("reverse_words('one two three')", "three two one"),
        ("reverse_words('up down')", "down up"),
    ),
    _make(
        "is_leap(year)",
        "Whether a year is a leap year:",
        "return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
        "or year % 400 == 0",
        ("or year % 4 == 0", "or year % 100 == 0"),
        ("is_leap(1900)", "False"),
        ("is_leap(2023)", "False"),
        ("is_leap(2000)", "True"),
        ("is_leap(2100)", "False"),
        ("is_leap(2032)", "True"),
    ),
)
