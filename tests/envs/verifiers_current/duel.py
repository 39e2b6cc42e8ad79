"""An environment for two models."""

import verifiers.v1 as vf

__all__ = ["DuelEnv", "DuelTaskset"]


class DuelConfig(vf.EnvConfig):
    other: vf.AgentConfig = vf.AgentConfig()


class DuelTaskset(vf.Taskset):
    def load(self):
        return [vf.Task({"prompt": "Begin."})]


class DuelEnv(vf.Env):
    Config = DuelConfig
