"""A taskset on the small package: a sum that is asked again until it is right, with a tool that doubles."""

import verifiers.v1 as vf

__all__ = ["RiddleEnv", "RiddleTaskset"]


class RiddleConfig(vf.TasksetConfig):
    first: int = 1
    fails: bool = False


class RiddleTaskset(vf.Taskset):
    Config = RiddleConfig

    def load(self):
        number = self.config.first
        while True:
            yield vf.Task({"system": "You double.", "prompt": f"Twice {number}?", "answer": str(2 * number)})
            number += 1


class RiddleEnv(vf.Env):
    servers = ("sums",)

    def follow(self, task, trace):
        if self.config.taskset.fails:
            raise RuntimeError("no more riddles")
        right = trace.messages[-1]["content"] == task.data["answer"]
        return None if right else [*trace.messages[1:], {"role": "user", "content": "No. Again?"}]

    def score(self, task, trace):
        right = trace.messages[-1].get("content") == task.data["answer"]
        vf.record_reward(trace, "right", float(right), 0.5)
        trace.metrics["turns"] = sum(message["role"] == "assistant" for message in trace.messages)
