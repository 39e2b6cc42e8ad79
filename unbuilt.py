"""Parts of the recipe language that this version cannot run yet; when one is built, its line goes.

A key is `key=value`, `key>number`, or `key` for anything but its default; `*` stands for a name of the recipe's own.
The text says what the part is. `validate` tells of them by name, and a run refuses them.
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
