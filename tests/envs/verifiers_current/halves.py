"""A taskset with splits of its own."""

import verifiers.v1 as vf

__all__ = ["HalvesTaskset"]


class HalvesConfig(vf.TasksetConfig):
    split: str = "train"


class HalvesTaskset(vf.Taskset):
    Config = HalvesConfig

    def load(self):
        return [vf.Task({"prompt": f"{self.config.split} {number}"}) for number in range(3)]
