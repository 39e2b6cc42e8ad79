"""Write `data/tasks.txt` again: each task, its split, the right answer; python -m agym.envs.websites.solvability."""

from __future__ import annotations

from pathlib import Path

from .catalog import describe_tasks

if __name__ == "__main__":
    (Path(__file__).parent / "data" / "tasks.txt").write_text("\n".join((*describe_tasks(), "")), "utf-8")
