"""Parts of the recipe language that this version cannot run: `validate` warns of them, and a run refuses them.

A key is `key=value`, `key>number`, or `key` for anything but its default; `*` stands for any name in the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["UNBUILT"]

UNBUILT: Mapping[str, str] = {
    "hardware.gpus_per_node>1": "several GPUs that sample and learn together",
    "hardware.layout=split": "GPUs of their own for sampling and learning",
    "hardware.nodes": "several nodes",
    "hardware.rollout.tensor_parallel": "a sampling engine over several GPUs",
}
