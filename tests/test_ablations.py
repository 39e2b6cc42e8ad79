"""One key of a shipped recipe set to something else: a fixed tenth of what `bench/ablations.py` tries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from agym.files import SHIPPED, is_base, shipped_names

# pytest has it there
sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))
from ablations import Ablation, ablations, chosen, compiled, judge

NAMES = [name for name in shipped_names() if not is_base(f"{name}.yaml")]
STUDIES = [name for name in NAMES if "\nmatrix:" in (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")]


def wrong(names: list[str]) -> list[str]:
    return [f"{each.name}: {answer}" for each in chosen(ablations(iter(names)), (1, 10)) if (answer := judge(each))]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in STUDIES])
def test_a_key_set_to_something_else_gives_a_plan_or_an_error_at_what_was_set(name: str) -> None:
    assert wrong([name]) == []


@pytest.mark.heavy
@pytest.mark.parametrize("name", STUDIES)
def test_so_it_is_in_every_run_of_a_matrix(name: str) -> None:
    assert wrong([name]) == []


def test_an_answer_elsewhere_is_noticed() -> None:
    assert judge(Ablation("quickstart", "algorithm.kl.coef", "0", False)) is None
    assert compiled("quickstart", "model=null").failed
    assert judge(Ablation("no-such-recipe", "seed", "1", False)) is not None
