"""Parts of the recipe language that this version cannot run yet; when one is built, its line goes.

A key is `key=value`, or `key` for anything but its default; `*` stands for a name of the recipe's own. The text says
what the part is. `validate` tells of them by name, and a run refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["UNBUILT"]

UNBUILT: Mapping[str, str] = {
    "agent.demonstrations": "expert episodes in the prompt",
    "agent.format=code": "the agent format 'code'",
    "agent.format=tools": "the agent format 'tools'",
    "agent.guided": "guided decoding",
    "agent.memory.kind=summary": "memory by summary",
    "agent.memory.kind=window": "memory by window",
    "agent.parallel_calls": "parallel tool calls",
    "agent.planning": "planning",
    "agent.reflection": "reflection",
    "agent.thinking": "replies without thoughts",
    "environments.*.dialect=agentgym": "playing on a server of the AgentGym dialect",
    "environments.*.dialect=openenv": "playing on a server of the OpenEnv dialect",
    "environments.*.replicas": "several servers of one environment",
    "hardware.layout=split": "GPUs of their own for sampling and learning",
    "hardware.nodes": "several nodes",
    "model.lora": "LoRA",
}
