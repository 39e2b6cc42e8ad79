"""TRL's half of trl.py: trains by TRL's GRPO what a recipe's plan says, and records where the seconds went.

Takes a recipe and a folder. Leaves in the folder: `trl.jsonl`, and the weights at every eval as `step-N/`. Tasks, their
order, horizons, learning rates, prompts and the game come from agym's own code; sampling and learning are TRL's. Runs
in build/peer-trl, with `python -P`: the bench next to it has the name of the library.

Of TRL: a `rollout_func` plays all episodes in rounds, one call of `generate` per turn for those still going (TRL's own
call, left-padded). A model from scratch learns in one micro-batch per update, of which `bnpo` is the mean over the
tokens; a pretrained one group by group, for memory's sake, with `dapo` for the same mean. Adapters are PEFT's, in the
precision of the base model. Checkpointing of activations, on by default, would only cost time here.
On a CPU its continuous batching attends from every episode to all others, and its vLLM modes cannot hand weights over.
No setting leaves out groups without spread, or, with several updates to a rollout, the second forward for log-probs
that the sampler knew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.expression.expr import Expr
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import DType, Stage
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import Env, EnvFactory, Observation
from agym.envs.registry import factory
from agym.files import DiskLibrary
from agym.runtime.agents.chat import Chat
from agym.runtime.agents.formats import format_for
from agym.runtime.agents.messages import refuse
from agym.runtime.agents.prompts import CUT, add_actions
from agym.runtime.backends.hf_models import ModelSource, load_tokenizer
from agym.runtime.progress import Progress, StageFacts
from agym.runtime.rollout.episode import Task
from agym.runtime.rollout.task_sampler import TaskPool, select_tasks
from agym.runtime.seeds import derive
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

THREADS = 2


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(THREADS)
    plan = _plan(arguments.recipe)
    name, environment = next(iter(plan.stages[0].settings.environments.items()))
    make = factory(environment.use, environment.options)
    lessons = curriculum(plan, _pool(plan, name, make))
    play = Play(plan, make, lessons)
    trainer = _trainer(plan, lessons, play, arguments.folder)
    trainer.add_callback(Times(trainer, play, arguments.folder, plan))
    trainer.train()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--folder", type=Path, default=Path())
    return parser.parse_args()


def _plan(recipe: str) -> Plan:
    library = DiskLibrary(os.getcwd())
    compiled = compile_recipe(library.open(recipe), library, (), os.environ, catalog())
    if compiled.failed:
        raise SystemExit("\n".join(each.message for each in compiled.diagnostics))
    return compiled.variants[0].plan


# --- what is to be learnt ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One step of the plan."""

    tasks: Sequence[Task]
    turns: int
    lrs: Sequence[float]
    """One for each update."""


def _pool(plan: Plan, name: str, make: EnvFactory) -> TaskPool:
    selection = plan.stages[0].settings.environments[name].tasks.train
    tasks = asyncio.run(select_tasks(InlineEnv(make), selection, None, name, derive(plan.seed, "tasks")))
    return TaskPool(environment=name, tasks=tasks)


def curriculum(plan: Plan, pool: TaskPool) -> list[Lesson]:
    """Every step as agym would take it."""
    progress, lessons = Progress(), list[Lesson]()
    for stage in (each.settings for each in plan.stages):
        while progress.step == 0 or not stage.until.holds(StageFacts(progress, stage.stage, "until")):
            lessons.append(_lesson(plan, stage, pool, progress))
            progress.count_step()
        progress.next_stage()
    return lessons


def _lesson(plan: Plan, stage: Stage, pool: TaskPool, progress: Progress) -> Lesson:
    algorithm, facts, lrs = stage.algorithm, StageFacts(progress, stage.stage, "schedule"), list[float]()
    for _ in range(algorithm.groups_per_step // algorithm.groups_per_update):
        warm = min(1.0, (progress.updates + 1) / (algorithm.optimizer.warmup_steps + 1))
        lrs.append(_number(algorithm.lr, facts) * warm)
        progress.updates += 1
    pools, weights = {pool.environment: pool}, {pool.environment: 1.0}
    return Lesson(
        tasks=progress.mixture.draw(pools, weights, algorithm.groups_per_step, plan.seed),
        turns=int(_number(stage.turns, facts)),
        lrs=lrs,
    )


def _number(number: float | Expr, facts: StageFacts) -> float:
    return number.number(facts) if isinstance(number, Expr) else number


# --- playing -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Attempt:
    """An episode under way."""

    game: Env
    prompt: list[int]
    said: list[int] = field(default_factory=list)
    """What followed the prompt: replies, and what the game answered."""
    sampled: list[int] = field(default_factory=list)
    """1 for the tokens of replies, 0 for the others."""
    actions: Sequence[str] = ()
    """What the game listed last."""
    score: float = 0.0
    over: bool = False

    def add(self, ids: Sequence[int], *, sampled: bool) -> None:
        self.said += ids
        self.sampled += [int(sampled)] * len(ids)


class Play:
    """TRL's `rollout_func`."""

    def __init__(self, plan: Plan, make: EnvFactory, lessons: Sequence[Lesson]) -> None:
        stage = plan.stages[0].settings
        self._games = [make() for _ in range(stage.algorithm.groups_per_step * stage.algorithm.group_size)]
        self._chat = Chat(load_tokenizer(ModelSource(path=plan.model.path)))
        self._agent = stage.agent
        self._format = format_for(stage.agent, opened=self._chat.opens_thoughts)
        self._prompt = None if stage.agent.prompt is None else Path(stage.agent.prompt).read_text()
        self._lists_actions = plan.model.init is None if stage.agent.show_actions is None else stage.agent.show_actions
        self._lessons = lessons
        self.seconds = 0.0
        self.success = 0.0
        self.sampled_tokens = 0

    def __call__(self, prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, Any]:
        """A prompt is the place of its task: it comes once for each episode of a group."""
        started = perf_counter()
        lesson = self._lessons[int(prompts[0]) // len(self._lessons[0].tasks)]
        tasks = [lesson.tasks[int(place) % len(lesson.tasks)] for place in prompts]
        attempts = [self._open(game, task) for game, task in zip(self._games, tasks, strict=True)]
        for turn in range(lesson.turns):
            going = [each for each in attempts if not each.over]
            if not going:
                break
            replies, _ = trainer._generate_single_turn([each.prompt + each.said for each in going], None, {}, 1)
            for each, reply in zip(going, replies, strict=True):
                self._answer(each, reply, last=turn + 1 == lesson.turns)
        self.success = sum(each.score for each in attempts) / len(attempts)
        self.sampled_tokens = sum(sum(each.sampled) for each in attempts)
        self.seconds = perf_counter() - started
        return {
            "prompt_ids": [each.prompt for each in attempts],
            "completion_ids": [each.said for each in attempts],
            "env_mask": [each.sampled for each in attempts],
            "score": [each.score for each in attempts],
            "logprobs": None,
        }

    def _open(self, game: Env, task: Task) -> Attempt:
        first = game.reset(task.id, task.seed)
        opening = self._format.opening(game.spec.prompt, self._shown(first), self._prompt)
        return Attempt(game, list(self._chat.begin(opening)), actions=first.valid_actions or ())

    def _shown(self, observation: Observation) -> str:
        return add_actions(observation.text, observation.valid_actions) if self._lists_actions else observation.text

    def _answer(self, attempt: Attempt, reply: list[int], *, last: bool) -> None:
        attempt.add(reply, sampled=True)
        complete = reply[-1] in self._chat.ends
        reading = self._format.read(self._chat.decode(reply), attempt.actions) if complete else refuse(CUT)
        messages = self._format.correction(reading.problem)
        if reading.action is not None:
            step = attempt.game.step(reading.action)
            attempt.score, attempt.over = step.reward, step.ended
            attempt.actions = step.observation.valid_actions or ()
            messages = self._format.observation(self._shown(step.observation))
        # an end token that the model did not draw is given, never trained on
        closing = () if complete else (self._chat.end_of_reply,)
        follow = [*closing, *self._chat.follow(messages)]
        room = self._agent.context_tokens - len(attempt.prompt) - len(attempt.said) - len(follow)
        attempt.over = attempt.over or last or room <= 0
        if not attempt.over:
            attempt.add(follow, sampled=False)


def score(prompts: Sequence[str], completions: Sequence[str], score: Sequence[float], **_: Any) -> Sequence[float]:
    return score


# --- learning ------------------------------------------------------------------------------------------------------


class Trainer(GRPOTrainer):
    prepared_s = 0.0
    """Rollouts and what TRL makes of them before it learns, since the start."""

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        started = perf_counter()
        inputs = super()._prepare_inputs(generation_batch)
        self.prepared_s += perf_counter() - started
        return inputs


def _trainer(plan: Plan, lessons: Sequence[Lesson], play: Play, folder: Path) -> Trainer:
    settings = plan.stages[0].settings
    algorithm = settings.algorithm
    lrs = [lr for lesson in lessons for lr in lesson.lrs]
    model = _model(plan)
    optimizer = torch.optim.AdamW(
        [each for each in model.parameters() if each.requires_grad],
        lr=1.0,
        betas=algorithm.optimizer.betas,
        eps=algorithm.optimizer.eps,
        weight_decay=algorithm.optimizer.weight_decay,
        fused=True,
    )
    updates = _updates(plan)
    pieces = algorithm.groups_per_update if plan.model.lora else 1
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=len(lrs),
        per_device_train_batch_size=algorithm.groups_per_update * algorithm.group_size // pieces,
        gradient_accumulation_steps=pieces,
        steps_per_generation=updates * pieces,
        num_generations=algorithm.group_size,
        max_completion_length=settings.agent.tokens_per_turn,
        temperature=settings.sampling.temperature,
        beta=0.0,
        epsilon=algorithm.loss.clip.low,
        epsilon_high=algorithm.loss.clip.high,
        scale_rewards="group",
        loss_type="dapo" if plan.model.lora else "bnpo",
        max_grad_norm=algorithm.max_grad_norm,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        dataloader_pin_memory=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=plan.seed,
    )
    places = [str(place) for place in range(sum(len(lesson.tasks) for lesson in lessons))]
    return Trainer(
        model=model,
        reward_funcs=score,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": places}),
        processing_class=AutoTokenizer.from_pretrained(plan.model.path, padding_side="left"),
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: lrs[min(at, len(lrs) - 1)])),
        rollout_func=play,
    )


def _updates(plan: Plan) -> int:
    algorithm = plan.stages[0].settings.algorithm
    return algorithm.groups_per_step // algorithm.groups_per_update


def _model(plan: Plan) -> torch.nn.Module:
    dtype = torch.bfloat16 if plan.model.dtype is DType.BF16 else torch.float32
    model = AutoModelForCausalLM.from_pretrained(plan.model.path, dtype=dtype)
    if (lora := plan.model.lora) is None:
        return model
    from peft import PeftModel

    # adapters in the precision of the model, so that nothing is cast back and forth
    return PeftModel.from_pretrained(model, str(lora.path), is_trainable=True, autocast_adapter_dtype=False)


class Times(TrainerCallback):
    """One row per step of the plan. Weights are written with the clock stopped."""

    def __init__(self, trainer: Trainer, play: Play, folder: Path, plan: Plan) -> None:
        self._trainer = trainer
        self._play = play
        self._folder = folder
        self._every = plan.eval.every
        self._updates = _updates(plan)
        self._since = self._began = self._busy = self._prepared = 0.0
        self._steps = 0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._since = perf_counter()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._busy += perf_counter() - self._began
        if state.global_step % self._updates:
            return
        prepared = self._trainer.prepared_s - self._prepared
        self._steps += 1
        self._write(
            {
                "total_step": self._steps,
                "rollout/success": self._play.success,
                "rollout/tokens": self._play.sampled_tokens,
                "timing_s/rollout": self._play.seconds,
                "timing_s/prepare": prepared - self._play.seconds,
                "timing_s/update": self._busy - prepared,
                "timing_s/step": perf_counter() - self._since,
            }
        )
        if self._steps % self._every == 0 or state.global_step == state.max_steps:
            self._export(self._folder / f"step-{self._steps}")
        self._prepared, self._busy, self._since = self._trainer.prepared_s, 0.0, perf_counter()

    def _write(self, row: Mapping[str, float]) -> None:
        with (self._folder / "trl.jsonl").open("a") as file:
            file.write(f"{json.dumps(row)}\n")

    def _export(self, folder: Path) -> None:
        self._trainer.model.save_pretrained(folder)
        self._trainer.processing_class.save_pretrained(folder)


if __name__ == "__main__":
    main()
