"""Keys without effect: one that a person wrote in vain is a mistake. The tables of `effects` say why.

Enters: a Recipe and where its keys stand. Leaves: diagnostics at those keys. A key of the recipe itself must matter in
at least one stage; a key of a stage in that stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ..diagnostics import Diagnostic
from ..model.algorithm import Algorithm, Kind
from ..model.recipe import Recipe, Stage
from ..model.stage_kinds import kind_of, learns
from ..text.tree import Path
from . import effect_tables as effects
from .condition import Keys, nested
from .effect_tables import Entry, Setting, World
from .spans import Places, dotted

__all__ = ["check", "relevant"]

C = TypeVar("C")

_ALGORITHM = nested(effects.ALGORITHM)
_AGENT = nested(effects.AGENT)
_STAGE = nested(effects.STAGE)
_ENTRY = nested(effects.ENTRY)
_ENVIRONMENT = nested(effects.ENVIRONMENT)
_RECIPE = nested(effects.RECIPE)
_SINK = nested(effects.SINK)


def relevant(path: Path, algorithm: Algorithm, kind: Kind | None = None) -> str | None:
    """Why a key of `algorithm` has no effect with these settings; None if it has one."""
    keys = _ALGORITHM
    for step in path[1:] if path[:1] == ("algorithm",) else path:
        inner = keys.below.get(str(step))
        if inner is None:
            break
        keys = inner
    return keys.in_vain([Setting(algorithm, kind or kind_of(algorithm))])


def check(recipe: Recipe, places: Places) -> Iterator[Diagnostic]:
    """A diagnostic for each key, or whole section, that a person wrote and that changes nothing."""
    yield from _stages(places, (), recipe.schedule, recipe.environments)
    for index, stage in enumerate(recipe.schedule):
        yield from _stages(places, ("schedule", index), [stage], stage.environments)
        entry = Entry(is_first=index == 0, learns=learns(stage.algorithm), measures=recipe.eval is not None)
        yield from _unless_any(places, ("schedule", index), _ENTRY, [entry])
    yield from _unless_any(places, (), _RECIPE, [recipe])
    for index, sink in enumerate(recipe.logging):
        yield from _unless_any(places, ("logging", index), _SINK, [sink])


def _stages(places: Places, base: Path, stages: Sequence[Stage], worlds: Iterable[str]) -> Iterator[Diagnostic]:
    """What is written at `base` for the stages: in the recipe for all of them, or in one of them."""
    settings = [Setting(each.algorithm, kind_of(each.algorithm)) for each in stages]
    yield from _unless_any(places, (*base, "algorithm"), _ALGORITHM, settings)
    yield from _unless_any(places, (*base, "agent"), _AGENT, [each.agent for each in stages])
    yield from _unless_any(places, base, _STAGE, stages)
    for name in worlds:
        present = [World(each.environments[name], each) for each in stages if name in each.environments]
        yield from _unless_any(places, (*base, "environments", name), _ENVIRONMENT, present)


def _unless_any(places: Places, base: Path, keys: Keys[C], settings: Sequence[C]) -> Iterator[Diagnostic]:
    """Reports what has an effect in none of the settings; a section once, without its keys."""
    for name in places.written(*base):
        inner = keys.below.get(name)
        if inner is None:
            continue
        reason = inner.in_vain(settings)
        if reason is not None:
            yield _report(places, (*base, name), reason)
        elif inner.below:
            yield from _unless_any(places, (*base, name), inner, settings)


def _report(places: Places, path: Path, reason: str) -> Diagnostic:
    message = f"'{dotted(path)}' has no effect: {reason}"
    return Diagnostic(code="no-effect", message=message, span=places.key(*path), help="leave it out")
