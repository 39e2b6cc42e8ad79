"""A package with the shape of verifiers, small enough to be imported in an instant."""

__all__ = ["Environment"]

__version__ = "0.1.14"


class Rubric:
    def __init__(self, score):
        self._score = score

    async def score_rollout(self, state):
        state["metrics"] = self._score(state)
        state["reward"] = state["metrics"]["right"]


class Environment:
    """Turns until `respond` returns None or the limit is met."""

    def __init__(self, *, train, test, respond, score, system_prompt=None, max_turns=-1, tool_defs=()):
        self._train, self._test, self._respond = train, test, respond
        self.rubric = Rubric(score)
        self.system_prompt, self.max_turns, self.tool_defs = system_prompt, max_turns, list(tool_defs)

    def get_dataset(self):
        return self._train

    def get_eval_dataset(self):
        return self._test or self._train

    async def rollout(self, row, client, model, sampling_args):
        messages = list(row["prompt"])
        start, state = len(messages), {**row, "turns": 0}
        while True:
            response = await client.get_response(prompt=messages, model=model, sampling_args=sampling_args)
            reply = {"role": "assistant", "content": response.message.content, "calls": response.message.tool_calls}
            state["turns"] += 1
            said = self._respond(reply, state)
            messages = [*messages, reply, *([] if said is None else [said])]
            if said is None or state["turns"] >= self.max_turns > 0:
                break
        return {**state, "completion": messages[start:], "stop_condition": "answered" if said is None else "turns"}
