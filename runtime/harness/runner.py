"""An episode played by a harness: its session, its key, its agent, and its result."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from ...dsl.model.recipe import Harness as Settings
from ...dsl.model.recipe import HarnessScore, Rollout
from ...envs.errors import EnvFault, FaultKind
from ...envs.protocol import Session, Step, score_of
from ..agents.messages import Message
from ..errors import StepRefused
from ..policy_endpoint.endpoint import PolicyEndpoint
from ..policy_endpoint.messages import write_message
from ..policy_endpoint.policy import Policy, PolicyEpisode
from ..rollout.env_calls import (
    ConcurrencyLimits,
    ConnectedEnv,
    check_score,
    limit_time,
    measures_of,
    open_session,
    validated,
    with_deadline,
    with_retries,
)
from ..rollout.episode import Ending, Episode, HarnessReport, PendingVerdict, Segment, Task, Turn
from ..rollout.player import EpisodeLimits
from ..rollout.verdicts import find_pending
from .expert import ExpertSource, HarnessExpert, mark_imitated
from .peers import Peers
from .process import run_process
from .registry import Harness, HarnessTask
from .result import HarnessResult, load_result, read_result
from .session import HarnessSession, SessionRoutes, describe_task

__all__ = ["HarnessRunner", "Pace"]


class Pace(Protocol):
    """Time limits, concurrency limits and clock of episodes."""

    @property
    def timeouts(self) -> Rollout: ...

    @property
    def concurrency(self) -> ConcurrencyLimits: ...

    @property
    def clock(self) -> Callable[[], float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessRunner:
    """Plays episodes by a harness, as `play_episode` does by our own agent."""

    settings: Settings
    endpoint: PolicyEndpoint
    policy: Policy
    peers: Peers
    environ: Mapping[str, str]
    harness: Harness | None = None
    """The registered one; None for a command."""
    expert: ExpertSource | None = None
    """Replies in the policy's place, where demonstrations are made."""

    async def __call__(
        self,
        pace: Pace,
        env: ConnectedEnv,
        task: Task,
        index: int,
        limits: EpisodeLimits,
        seed: int,
        examples: Sequence[Message] = (),
    ) -> Episode:
        reports: list[HarnessReport] = []

        async def once() -> Episode:
            async with (
                open_session(env, task, pace.timeouts, pace.concurrency) as session,
                limit_time(pace.timeouts.episode_timeout_s, f"the episode of task '{task.id}' in {env.name} to end"),
            ):
                attempt = _Attempt(runner=self, pace=pace, env=env, task=task, index=index, limits=limits)
                try:
                    return await attempt.play(session, seed)
                finally:
                    reports.append(attempt.report)

        episode = await with_retries(once, task, index, limits.horizon, pace.timeouts.retries, pace.clock)
        return replace(episode, harness=reports[-1] if reports else None)


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One attempt at an episode."""

    runner: HarnessRunner
    pace: Pace
    env: ConnectedEnv
    task: Task
    index: int
    limits: EpisodeLimits
    _log: str = ""
    _episode: PolicyEpisode | None = None
    _rewards: list[float] = field(default_factory=list)
    _measures: Mapping[str, float] = field(default_factory=dict)

    async def play(self, session: Session, seed: int) -> Episode:
        runner = self.runner
        shown = HarnessSession(
            self.task,
            self.env.spec,
            session.first,
            partial(self._step, session),
            horizon=self.limits.horizon,
            clock=self.pace.clock,
            num_replies=lambda: len(self._episode.exchanges) if self._episode else 0,
        )
        expert = await self._prepare_expert(session, shown, seed)
        key = runner.endpoint.make_key()
        try:
            with runner.endpoint.open_episode(
                runner.policy,
                seed=seed,
                max_requests=runner.settings.requests,
                env=SessionRoutes(shown),
                admits=partial(runner.peers.admits, key),
                key=key,
            ) as self._episode:
                self._episode.expert = expert
                self._episode.failure = asyncio.get_running_loop().create_future()
                result = await self._run(shown)
            await shown.settle()
            if result.answer is not None and not shown.ended:
                await shown.step(result.answer)
        finally:
            await shown.close()
            if expert is not None:
                await expert.close()
        return self._build(shown, result)

    async def _prepare_expert(self, session: Session, shown: HarnessSession, seed: int) -> HarnessExpert | None:
        source = self.runner.expert
        if source is None:
            return None
        steps = source.choose_actions(self.env, session, self.task, self.limits.horizon, seed)
        expert = HarnessExpert(source=source, steps=steps, shown=shown)
        await expert.prepare()
        return expert

    async def _step(self, session: Session, action: str) -> Step:
        try:
            async with self.pace.concurrency.step():
                what = f"{self.env.name} to answer '{action[:60]}'"
                step = await with_deadline(session.step(action), self.pace.timeouts.step_timeout_s, what)
            self._rewards.append(validated(step, self.env.name).reward)
        except (EnvFault, StepRefused) as error:
            if self._episode is not None:  # whatever the agent makes of it
                self._episode.fail(error)
            raise
        self._measures = measures_of(step)
        return step

    # --- the agent

    async def _run(self, shown: HarnessSession) -> HarnessResult:
        assert self._episode is not None
        assert self._episode.failure is not None
        run = self._run_command if self.runner.harness is None else self._run_harness
        work, failure = asyncio.ensure_future(run(shown)), self._episode.failure
        try:
            await asyncio.wait((work, failure), return_when=asyncio.FIRST_COMPLETED)
            if failure.done():
                failure.result()  # the engine's, which a retry would not help, the expert's or the environment's
            if work.cancelled():  # by the harness itself, and not this episode
                raise _fault("it cancelled its own coroutine")
            return await work
        finally:
            failure.cancel()
            work.cancel()
            await asyncio.gather(work, failure, return_exceptions=True)

    async def _run_command(self, shown: HarnessSession) -> HarnessResult:
        episode, runner = self._episode, self.runner
        assert episode is not None
        assert runner.settings.command is not None
        task = json.dumps({**describe_task(shown), "options": dict(runner.settings.options)}).encode()
        try:
            end = await run_process(
                runner.settings.command,
                task,
                environ=runner.environ,
                variables=self._variables(episode.key),
                limits=runner.settings.limits,
                timeout_s=runner.settings.timeout_s,
                log_bytes=runner.settings.log_kb * 1024,
                started=lambda pid: runner.peers.add(episode.key, pid),
            )
        finally:
            runner.peers.remove(episode.key)
        self._log = end.log
        if episode.key in runner.peers.thieves:
            runner.peers.thieves.discard(episode.key)
            raise _fault("it used an API key that is not its own", FaultKind.GARBAGE)
        if end.trouble and not self._is_refused(end.trouble):
            last = end.log.strip().rpartition("\n")[2][:200]
            kind = FaultKind.DEADLINE if end.expired else FaultKind.CRASHED
            raise _fault(end.trouble + (f": {last}" if last else ""), kind)
        return read_result({} if end.trouble else load_result(end.result), episode.usage)

    def _is_refused(self, trouble: str) -> bool:
        """Whether an agent gave up because its context or its requests were used up, which is not its fault."""
        return self._episode is not None and self._episode.limit is not None and "exit code" in trouble

    def _variables(self, key: str) -> dict[str, str]:
        url = self.runner.endpoint.url
        return {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": key,
            "OPENAI_MODEL": self.runner.endpoint.name,
            "AGYM_SESSION_URL": f"{url}/session",
            # an agent that calls only the policy must not send traces elsewhere
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }

    async def _run_harness(self, shown: HarnessSession) -> HarnessResult:
        episode, runner = self._episode, self.runner
        assert episode is not None
        assert runner.harness is not None
        task = HarnessTask(
            base_url=f"{runner.endpoint.url}/v1",
            api_key=episode.key,
            model=runner.endpoint.name,
            session=shown,
            options=runner.settings.options,
        )
        try:
            async with asyncio.timeout(runner.settings.timeout_s):
                given = await runner.harness(task)
        except TimeoutError:
            message = f"it did not end within 'timeout_s' ({runner.settings.timeout_s:g} s)"
            raise _fault(message, FaultKind.DEADLINE) from None
        except EnvFault:
            raise
        except (Exception, SystemExit) as error:
            self._log = f"{type(error).__name__}: {error}"
            if episode.limit is None:
                raise _fault(f"{type(error).__name__}: {str(error)[:200]}") from error
            given = {}
        return read_result(given, episode.usage)

    # --- its result

    @property
    def report(self) -> HarnessReport:
        if self._episode is None:
            return HarnessReport(requests=0, prompt_tokens=0, held_tokens=0, completion_tokens=0, log=self._log)
        lines, usage = self._episode.conversations.lines, self._episode.usage
        return HarnessReport(
            requests=usage.requests,
            prompt_tokens=usage.prompt,
            held_tokens=usage.held,
            completion_tokens=usage.completion,
            origins=tuple(line.origin.value for line in lines),
            parents=tuple(-1 if line.parent is None else lines.index(line.parent) for line in lines),
            log=self._log,
        )

    def _build(self, shown: HarnessSession, result: HarnessResult) -> Episode:
        assert self._episode is not None
        if not self._episode.exchanges:
            raise _fault("it ended without a reply of the policy")
        score = self._score(result)
        return Episode(
            task=self.task,
            index=self.index,
            segments=self._find_segments(self._episode),
            turns=_make_turns(self._episode, shown),
            ending=self._find_ending(shown),
            horizon=self.limits.horizon,
            score=score,
            success=score >= self.env.success_at,
            opening=_find_opening(self._episode),
            measures=self._measures,
            pending=self._find_pending(shown),
        )

    def _find_segments(self, episode: PolicyEpisode) -> tuple[Segment, ...]:
        if self.runner.expert is None:
            return episode.conversations.segments
        return mark_imitated(episode, self.runner.expert.loss_on)

    def _find_pending(self, shown: HarnessSession) -> PendingVerdict | None:
        if self.runner.settings.score is not HarnessScore.ENVIRONMENT or not shown.steps:
            return None
        last = shown.steps[-1]
        return find_pending(last.step, self._rewards, _find_turn(shown, last.after), self.env)

    def _score(self, result: HarnessResult) -> float:
        if self.runner.settings.score is HarnessScore.ENVIRONMENT:
            score = score_of(self.env.spec.score, self._rewards)
        elif result.score is None:
            raise _fault("its result has no 'score', and 'harness.score' is 'result'", FaultKind.GARBAGE)
        else:
            score = result.score
        check_score(score, self.env)
        return score

    def _find_ending(self, shown: HarnessSession) -> Ending:
        assert self._episode is not None
        last = shown.steps[-1].step if shown.steps else None
        if last is not None and last.terminated:
            return Ending.DONE
        if self._episode.limit is not None:
            return Ending.BUDGET if self._episode.limit == "context" else Ending.HORIZON
        # one that ends by itself has said all that it has to say
        return Ending.HORIZON if shown.ended else Ending.DONE


def _find_opening(episode: PolicyEpisode) -> tuple[Message, ...]:
    """What the agent had told the policy before its first reply, which is where a reader finds the task."""
    line = episode.exchanges[0].line
    told = line.messages[: line.replies[0][0] - 1]
    return tuple(Message(each.role.value, write_message(each.text, each.calls)) for each in told)


def _make_turns(episode: PolicyEpisode, shown: HarnessSession) -> tuple[Turn, ...]:
    """A turn for each reply, with the steps in the environment up to the next one; of several, the first of them holds
    the tokens. Steps before the first reply belong to no turn."""
    lines = episode.conversations.lines
    turns: list[Turn] = []
    for number, exchange in enumerate(episode.exchanges, 1):
        reply = Turn(
            segment=lines.index(exchange.line),
            start=exchange.start,
            end=exchange.end,
            reply=exchange.text,
            action=exchange.said,
            observation=exchange.observation,
            reward=0.0,
            state=f"request-{number}",
            sampling_s=exchange.seconds,
        )
        taken = [each for each in shown.steps if each.after == number]
        if not taken:
            turns.append(reply)
        for step in taken:
            turns.append(
                replace(
                    reply,
                    action=step.action,
                    observation=step.step.observation.text,
                    reward=step.step.reward,
                    env_s=step.seconds,
                )
            )
            reply = replace(reply, start=reply.end, reply="", sampling_s=0.0)
    return tuple(turns)


def _find_turn(shown: HarnessSession, number: int) -> int:
    """Index of the last turn that belongs to a reply, by its number from 1."""
    steps = Counter(each.after for each in shown.steps)
    return sum(max(steps[each], 1) for each in range(1, number + 1)) - 1


def _fault(message: str, kind: FaultKind = FaultKind.CRASHED) -> EnvFault:
    return EnvFault(f"harness: {message}", kind=kind)
