"""Rules about agents written elsewhere: one origin, a registered name, and stages that they can play."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics import Diagnostic
from ..model.algorithm import Kind, Preset
from ..model.recipe import Harness
from ..model.stage_kinds import kind_of
from ..suggest import did_you_mean, quote
from ..text.node import Path
from .context import Case, Rule

__all__ = ["HARNESS_RULES"]


def _harnesses(case: Case) -> Iterator[tuple[Path, Harness]]:
    for base, stage in case.stages():
        if stage.agent.harness is not None:
            yield (*base, "agent", "harness"), stage.agent.harness


def harness_has_one_origin(case: Case) -> Iterator[Diagnostic]:
    for path, harness in _harnesses(case):
        if harness.use is None and not harness.command:
            hint = "'use' names an installed one; 'command: [python, ./agent.py]' starts a process per episode"
            yield case.missing("a harness needs 'use' or 'command'", path, hint=hint)
        if harness.use is not None and harness.command is not None:
            message = "'use' names an installed harness and 'command' starts a process: give only one of them"
            yield case.error("conflict", message, (*path, "command"), "remove one of them")


def harness_is_registered(case: Case) -> Iterator[Diagnostic]:
    for path, harness in _harnesses(case):
        if harness.use is not None and harness.use not in case.catalog.harnesses:
            hint = did_you_mean(harness.use, case.catalog.harnesses) or (
                "install the package that registers it as an entry point of 'agym.harnesses', or write 'command:'"
            )
            yield case.error("unknown-name", f"harness {quote(harness.use)} is not installed", (*path, "use"), hint)


def harness_can_play(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        explores = kind_of(stage.algorithm) is Kind.EVOLVE or stage.algorithm.use is Preset.TURN_DPO
        if stage.agent.harness is not None and explores:
            message = f"a stage of '{stage.algorithm.use}' samples turns by itself, which a harness does not"
            hint = "write 'agent: {harness: null}' in this stage, or use another algorithm"
            yield case.error("conflict", message, (*base, "agent", "harness"), hint)


HARNESS_RULES: tuple[Rule, ...] = (harness_has_one_origin, harness_is_registered, harness_can_play)
