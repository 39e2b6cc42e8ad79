"""Parts of a real run on Ray are killed, one of each kind: it comes to its end, and its history is whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ON_ONE_MACHINE = ("sampler", "rank", "hung-rank", "environment", "raylet", "preemption", "driver")
ON_TWO_NODES = ("node", "link", "head")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("victims", "place"), [(ON_ONE_MACHINE, ()), (ON_TWO_NODES, ("--cluster",))], ids=["one-machine", "two-nodes"]
)
def test_a_run_outlives_one_of_each_kind(
    victims: tuple[str, ...], place: tuple[str, ...], root: Path, tmp_path: Path
) -> None:
    words = [*place, "--runs", "1", "--kills", str(len(victims)), "--victims", ",".join(victims)]
    done = subprocess.run(
        [sys.executable, root / "bench/faults.py", tmp_path, *words], capture_output=True, text=True, timeout=580
    )
    # what is wrong with the history is in the table
    assert done.returncode == 0, done.stdout + done.stderr
    kills = {kill["victim"]: kill for kill in map(json.loads, (tmp_path / "kills.jsonl").read_text().splitlines())}
    assert kills.keys() == {*victims}
    assert not any(kill["leftover"] for kill in kills.values())
    if "preemption" in victims:
        assert kills["preemption"]["discarded"] == 0, "it saves before it ends"
