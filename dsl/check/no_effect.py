"""Keys without effect, which are errors where a person wrote them.

A key of the recipe must matter in at least one stage, a key of a stage in that stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from ..catalog import Catalog, SinkInfo
from ..diagnostics import Diagnostic, Note
from ..frozen import frozen
from ..model.algorithm import Algorithm, Preset
from ..model.model_sizes import is_folder
from ..model.recipe import Recipe, Stage
from ..model.stage_kinds import kind_of, learns
from ..suggest import either
from ..text.node import Path
from . import effect_tables as effects
from .effect_tables import Condition, EffectEntry, EnvironmentEntry, StageEntry
from .spans import Places, join_path

__all__ = ["explain_no_effect", "find_keys_without_effect", "list_keys_without_effect"]

C = TypeVar("C")


@frozen(kw_only=False)
class NestedKeys(Generic[C]):
    """The conditions of a key and of its sections, in table order; and the keys below it."""

    conditions: tuple[Condition[C], ...]
    below: Mapping[str, NestedKeys[C]]

    def in_vain(self, settings: Iterable[C]) -> str | None:
        """The reason why the key matters in none of the settings, taken from the setting that comes closest."""
        furthest = -1
        for each in settings:
            failed = (place for place, condition in enumerate(self.conditions) if not condition.applies(each))
            place = next(failed, None)
            if place is None:
                return None
            furthest = max(furthest, place)
        return self.conditions[furthest].reason if furthest >= 0 else None


def _nest(table: Iterable[Condition[C]]) -> NestedKeys[C]:
    return _keys([(tuple(key.split(".")), each) for each in table for key in each.keys.split()], 0)


def _keys(table: Sequence[tuple[tuple[str, ...], Condition[C]]], depth: int) -> NestedKeys[C]:
    above = tuple(each for path, each in table if len(path) <= depth)
    names = dict.fromkeys(path[depth] for path, _ in table if len(path) > depth)
    inner = {name: [row for row in table if len(row[0]) <= depth or row[0][depth] == name] for name in names}
    return NestedKeys(above, {name: _keys(rows, depth + 1) for name, rows in inner.items()})


_ALGORITHM = _nest(effects.ALGORITHM)
_AGENT = _nest(effects.AGENT)
_STAGE = _nest(effects.STAGE)
_ENTRY = _nest(effects.ENTRY)
_ENVIRONMENT = _nest(effects.ENVIRONMENT)
_RECIPE = _nest(effects.RECIPE)


def explain_no_effect(path: Path, algorithm: Algorithm) -> str | None:
    """The reason why a key of `algorithm` has no effect with these settings; None if it has one."""
    keys = _ALGORITHM
    for step in path[1:] if path[:1] == ("algorithm",) else path:
        inner = keys.below.get(str(step))
        if inner is None:
            break
        keys = inner
    return keys.in_vain([algorithm])


def find_keys_without_effect(recipe: Recipe, places: Places, catalog: Catalog) -> Iterator[Diagnostic]:
    """Report each key or whole section without effect that a person wrote; those of one cause together."""
    found = list(list_keys_without_effect(recipe, places, catalog))
    idle = [path for path, _ in found if path[-1] != "use" and _is_of_a_stage(path)]
    use = _cause(recipe, places, idle) if len(idle) >= MANY else None
    if use is not None:
        yield _of_another_kind(places, use, recipe, idle)
        found = [each for each in found if each[0] not in idle]
    for reason, group in _by_reason(found):
        names = [f"'{join_path(path)}'" for path in group]
        listed = f"{', '.join(names[:-1])} and {names[-1]} have" if len(names) > 1 else f"{names[0]} has"
        help_text = "remove it" if len(names) == 1 else "remove them"
        notes = tuple(Note("this one as well", places.key(*path)) for path in group[1:])
        message = f"{listed} no effect: {reason}"
        yield Diagnostic(code="no-effect", message=message, span=places.key(*group[0]), help=help_text, notes=notes)


MANY = 4
"""Number of keys of one kind of learning from which on its name is the mistake rather than the keys."""


def _is_of_a_stage(path: Path) -> bool:
    steps = path[2:] if path[:1] == ("schedule",) else path
    return steps[:1] in (("algorithm",), ("sampling",), ("reward",), ("turns",)) or path[:2] == ("guards", "kl_max")


def _cause(recipe: Recipe, places: Places, idle: Sequence[Path]) -> Path | None:
    """The one place where `use` was written, if all these keys would have an effect with another."""
    if len({kind_of(stage.algorithm) for stage in recipe.schedule}) != 1:
        return None
    bases = {path[:2] for path in idle if path[:1] == ("schedule",)} if len(recipe.schedule) == 1 else set()
    written = [base for base in ((), *bases) if "use" in set(places.written(*base, "algorithm"))]
    return (*written[0], "algorithm", "use") if len(written) == 1 else None


def _of_another_kind(places: Places, use: Path, recipe: Recipe, idle: Sequence[Path]) -> Diagnostic:
    names = [join_path(path) for path in idle]
    listed = ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    name = recipe.schedule[0].algorithm.use
    message = f"with 'use: {name}' {len(names)} keys have no effect: {listed}"
    help_text = f"remove them, or write the algorithm that they are for, such as 'use: {_other(idle)}'"
    notes = tuple(Note("this has no effect", places.key(*path)) for path in idle)
    return Diagnostic(code="no-effect", message=message, span=places.value(*use), help=help_text, notes=notes)


def _other(idle: Sequence[Path]) -> Preset:
    """A named algorithm with which most of the keys have an effect, the best known first."""

    def count(use: Preset) -> int:
        keys = [path for path in idle if "algorithm" in path]
        made = Algorithm(use=use)
        return sum(explain_no_effect(path[path.index("algorithm") :], made) is None for path in keys)

    return max((Preset.GRPO, Preset.PPO, Preset.SFT, Preset.DPO, Preset.AGENT_EVOL), key=count)


def _by_reason(found: Sequence[tuple[Path, str]]) -> Iterator[tuple[str, list[Path]]]:
    """Keys of one section that have no effect for the same reason."""
    groups: dict[tuple[Path, str], list[Path]] = {}
    for path, reason in found:
        groups.setdefault((path[:1] if path[:1] != ("schedule",) else path[:2], reason), []).append(path)
    yield from ((reason, paths) for (_, reason), paths in groups.items())


def list_keys_without_effect(recipe: Recipe, places: Places, catalog: Catalog) -> Iterator[tuple[Path, str]]:
    """The same by their paths, each with the reason."""
    entries = [StageEntry(stage, _asks_judge(stage, catalog)) for stage in recipe.schedule]
    yield from _check_stages(places, (), entries, recipe.environments)
    for index, stage in enumerate(recipe.schedule):
        yield from _check_stages(places, ("schedule", index), [entries[index]], stage.environments)
        entry = EffectEntry(is_first=index == 0, learns=learns(stage.algorithm), measures=recipe.eval is not None)
        yield from _idle_keys(places, ("schedule", index), _ENTRY, [entry])
    yield from _idle_keys(places, (), _RECIPE, [recipe])
    for index, sink in enumerate(recipe.logging):
        yield from _unread(places, ("logging", index), catalog.sinks.get(sink.use), list(catalog.sinks.values()))


def _asks_judge(stage: Stage, catalog: Catalog) -> bool:
    """Whether an environment may ask a judge; nothing is known about one behind an address or in an unread folder."""
    for environment in stage.environments.values():
        info = catalog.environments.get(environment.use or "")
        hidden = environment.url is not None or (info is None and is_folder(environment.use or ""))
        if hidden or (info is not None and info.judged):
            return True
    return False


def _unread(places: Places, base: Path, sink: SinkInfo | None, sinks: Sequence[SinkInfo]) -> Iterator[tuple[Path, str]]:
    """Settings of a sink that it does not read."""
    if sink is None or sink.settings is None:
        return
    reads = ", ".join(map(repr, sink.settings)) or "no settings"
    for name in places.written(*base):
        if name != "use" and name not in sink.settings:
            others = [each.name for each in sinks if each.settings is not None and name in each.settings]
            which = f"; {either(others)} would read it" if others else ""
            yield (*base, name), f"'{sink.name}' reads {reads}{which}"


def _check_stages(
    places: Places, base: Path, entries: Sequence[StageEntry], worlds: Iterable[str]
) -> Iterator[tuple[Path, str]]:
    """Check what is written at `base` for the stages: in the recipe for all of them, or in one of them."""
    stages = [each.s for each in entries]
    yield from _idle_keys(places, (*base, "algorithm"), _ALGORITHM, [each.algorithm for each in stages])
    yield from _idle_keys(places, (*base, "agent"), _AGENT, [each.agent for each in stages])
    yield from _idle_keys(places, base, _STAGE, entries)
    for name in worlds:
        present = [EnvironmentEntry(each.environments[name], each) for each in stages if name in each.environments]
        yield from _idle_keys(places, (*base, "environments", name), _ENVIRONMENT, present)


def _idle_keys(places: Places, base: Path, keys: NestedKeys[C], settings: Sequence[C]) -> Iterator[tuple[Path, str]]:
    """What has no effect in any of the settings; a section once, without its keys."""
    for name in places.written(*base):
        inner = keys.below.get(name)
        if inner is None:
            continue
        reason = inner.in_vain(settings)
        if reason is not None:
            yield (*base, name), reason
        elif inner.below:
            yield from _idle_keys(places, (*base, name), inner, settings)
