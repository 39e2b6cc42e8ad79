"""A package with the shape of verifiers, small enough to be imported in an instant."""

import inspect

__all__ = ["Environment", "Rubric", "RubricGroup"]

__version__ = "0.1.14"


class Rubric:
    """As in verifiers, a function that raises has given 0."""

    def __init__(self, funcs, weights):
        self.funcs, self.weights = funcs, weights

    async def score_rollout(self, state):
        scores = [await self._call(func, state) for func in self.funcs]
        state["metrics"] = {func.__name__: score for func, score in zip(self.funcs, scores, strict=True)}
        state["reward"] = sum(score * weight for score, weight in zip(scores, self.weights, strict=True))

    async def _call(self, func, state):
        known = {**state, "state": state}
        try:
            score = func(**{name: known[name] for name in inspect.signature(func).parameters})
            return float(await score if inspect.isawaitable(score) else score)
        except Exception:
            return 0.0


class RubricGroup:
    def __init__(self, rubrics):
        self.rubrics = rubrics

    async def score_rollout(self, state):
        reward, metrics = 0.0, {}
        for rubric in self.rubrics:
            await rubric.score_rollout(state)
            reward, metrics = reward + state["reward"], {**metrics, **state["metrics"]}
        state["reward"], state["metrics"] = reward, metrics


class Environment:
    """Turns until `respond` returns None or the limit is met."""

    def __init__(self, *, train, test, respond, rubric, system_prompt=None, max_turns=-1, tool_defs=()):
        self._train, self._test, self._respond = train, test, respond
        self.rubric = rubric
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
