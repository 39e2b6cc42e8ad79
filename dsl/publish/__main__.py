"""Write the schemas and the recipe reference from the code: `python -m agym.dsl.publish`, or compare: `--check`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from .json_schemas import write_plan_schema, write_recipe_schema
from .reference_docs import write_reference

ROOT = Path(__file__).parents[2]
FILES: Mapping[Path, Callable[[], str]] = {
    ROOT / "schemas" / "recipe.v1.json": write_recipe_schema,
    ROOT / "schemas" / "plan.v1.json": write_plan_schema,
    ROOT / "docs" / "recipe-reference.md": write_reference,
}


def main(arguments: list[str], files: Mapping[Path, Callable[[], str]] = FILES) -> int:
    stale = 0
    for file, write in files.items():
        if arguments != ["--check"]:
            file.write_text(write(), encoding="utf-8")
            continue
        is_fresh = file.is_file() and file.read_text(encoding="utf-8") == write()
        print(f"{file.name} is {'fresh' if is_fresh else 'not what the code says: run make docs'}")
        stale += not is_fresh
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
