"""Claim: what we compute is what peers' own functions compute, up to the differences that docs/conventions.md lists.

Random groups of episodes with several turns, rewards at turn ends and observations between them go through both; so do
random log-probs through every loss and every divergence. The functions are read from a checkout that you name, by their
source alone: nothing of a peer is imported, installed or kept here.

    python bench/parity.py --verl CHECKOUT [--trl CHECKOUT] [--prime-rl CHECKOUT] [--cases 200]
"""

from __future__ import annotations
import __future__

import argparse
import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from agym.dsl.model.algorithm import (
    Advantage,
    Aggregation,
    Baseline,
    Divergence,
    Estimator,
    KLEstimator,
    Level,
    LossKind,
    Normalise,
)
from agym.runtime.learning.advantage import compute_advantages
from agym.runtime.learning.loss import LossInputs, compute_loss, compute_token_scale
from agym.runtime.learning.turn_rewards import TurnRewards
from agym.runtime.protocols import LossSettings, Normaliser
from torch import Tensor

_AGREE = 2e-5
"""Peers compute in single precision."""
Compare = Callable[["Batch", Any], float]


def main() -> int:
    arguments = _arguments()
    worst: dict[tuple[str, str], float] = {}
    for peer, load in _LOADERS.items():
        checkout = getattr(arguments, peer.replace("-", "_"))
        if checkout is None:
            continue
        functions = load(checkout)
        for name, compare in _CASES[peer].items():
            found = (compare(make_batch(seed), functions) for seed in range(arguments.cases))
            worst[peer, name] = max(found)
    print("| peer | function | cases | largest difference | |\n|---|---|---|---|---|")
    for (peer, name), difference in worst.items():
        verdict = "agrees" if difference <= _AGREE else "DIFFERS"
        print(f"| {peer} | {name} | {arguments.cases} | {difference:.1e} | {verdict} |")
    return 0 if worst and max(worst.values()) <= _AGREE else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in _LOADERS:
        parser.add_argument(f"--{peer}", type=Path, metavar="CHECKOUT")
    parser.add_argument("--cases", type=int, default=200)
    return parser.parse_args()


# --- the peers' own functions ----------------------------------------------------------------------------------------


def read_functions(file: Path, names: Sequence[str], scope: dict[str, Any]) -> dict[str, Any]:
    """Functions and classes of a file by name, methods too, without decorators and without the file's own imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names}
    missing = set(names) - set(found)
    if missing:
        raise SystemExit(f"{file}: no function {', '.join(sorted(missing))}; expected another commit of the peer")
    for node in found.values():
        node.decorator_list = []
    module = ast.Module(body=[found[name] for name in names], type_ignores=[])
    # annotations name types that are not loaded
    code = compile(module, str(file), "exec", flags=__future__.annotations.compiler_flag)
    exec(code, scope)
    return {name: scope[name] for name in names}


def read_verl(checkout: Path) -> Any:
    helpers = ["masked_sum", "masked_mean", "masked_var", "masked_whiten"]
    helping = read_functions(checkout / "verl/utils/torch_functional.py", helpers, {"torch": torch})
    scope = {
        "torch": torch,
        "np": np,
        "defaultdict": defaultdict,
        "verl_F": SimpleNamespace(**helping),
        "ActorConfig": _Config,
        "AlgoConfig": type("AlgoConfig", (), {}),
    }
    estimators = ["grpo", "rloo", "reinforce_plus_plus", "remax"]
    losses = ["vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "cispo"]
    names = ["agg_loss", "kl_penalty", "kl_penalty_forward", "compute_gae_advantage_return"]
    names += [f"compute_{name}_outcome_advantage" for name in estimators]
    names += [f"compute_policy_loss_{name}" for name in losses]
    return SimpleNamespace(**read_functions(checkout / "verl/trainer/ppo/core_algos.py", names, scope))


def read_trl(checkout: Path) -> Any:
    file = checkout / "trl/trainer/grpo_trainer.py"
    return SimpleNamespace(**read_functions(file, ["get_off_policy_mask"], {"torch": torch}))


def read_prime(checkout: Path) -> Any:
    names = ["_safe_mean", "compute_importance_ratio_and_mismatch_kl", "default_loss_fn"]
    scope = {"torch": torch, "LossOutputs": SimpleNamespace}
    return SimpleNamespace(**read_functions(checkout / "src/prime_rl/trainer/rl/loss.py", names, scope))


class _Config(SimpleNamespace):
    def get(self, name: str, default: object) -> object:
        return getattr(self, name, default)


# --- the same batch for both -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Episodes as rows, one token per column; 0 in the mask is an observation or padding."""

    groups: list[list[TurnRewards]]
    index: np.ndarray[Any, Any]
    mask: Tensor
    rewards: Tensor
    values: Tensor
    new: Tensor
    old: Tensor
    sampled: Tensor
    advantages: Tensor

    def ours(self, settings: Advantage, groups: list[list[TurnRewards]] | None = None) -> Tensor:
        """Our advantages, laid out as the peers have theirs."""
        found = torch.zeros_like(self.rewards)
        rows = [row for group in compute_advantages(groups or self.groups, settings) for row in group]
        for at, numbers in enumerate(rows):
            found[at, self.mask[at].bool()] = torch.from_numpy(numbers)
        return found


def make_batch(seed: int) -> Batch:
    """A few groups of two to five episodes of one to four turns."""
    random = np.random.default_rng(seed)
    lengths = [[random.integers(1, 5, random.integers(1, 5)).tolist() for _ in range(size)] for size in (2, 3, 5)]
    rows = [turns for group in lengths for turns in group]
    width = max(sum(turns) + len(turns) for turns in rows)
    mask, rewards = torch.zeros(len(rows), width, dtype=torch.float64), torch.zeros(len(rows), width).double()
    values = torch.from_numpy(random.normal(size=mask.shape))
    episodes = []
    for at, turns in enumerate(rows):
        place, earned = 0, random.choice([0.0, 0.0, 0.5, 1.0], len(turns))
        for length, reward in zip(turns, earned, strict=True):
            mask[at, place : place + length] = 1
            rewards[at, place + length - 1] = reward
            place += length + 1
        episodes.append(
            TurnRewards(
                lengths=tuple(turns),
                rewards=tuple(map(float, earned)),
                states=("",) * len(turns),
                loss_mask=None,
                values=values[at, mask[at].bool()].numpy(),
                token_rewards=None,
                greedy=None,
            )
        )
    rest = iter(episodes)
    old = -torch.from_numpy(random.exponential(1.0, mask.shape)) - 0.01
    new = (old + torch.from_numpy(random.normal(0, 0.4, mask.shape))).clamp(max=-1e-3)
    return Batch(
        groups=[[next(rest) for _ in group] for group in lengths],
        index=np.repeat([0, 1, 2], [2, 3, 5]),
        mask=mask,
        rewards=rewards,
        values=values,
        new=new,
        old=old,
        sampled=old + torch.from_numpy(random.normal(0, 0.3, mask.shape)),
        advantages=torch.from_numpy(random.normal(size=(len(rows), 1))).expand(mask.shape) * mask,
    )


# --- advantages ------------------------------------------------------------------------------------------------------


def _grouped(name: str, settings: Advantage, **options: Any) -> Compare:
    def compare(batch: Batch, verl: Any) -> float:
        function = getattr(verl, f"compute_{name}_outcome_advantage")
        theirs, _ = function(batch.rewards.clone(), batch.mask, batch.index, **options)
        return _apart(batch.ours(settings), theirs)

    return compare


def _reinforce_pp(batch: Batch, verl: Any) -> float:
    settings = Advantage(
        estimator=Estimator.REWARD_TO_GO, baseline=Baseline.NONE, normalise=Normalise.BATCH_STD, gamma=0.9
    )
    theirs, _ = verl.compute_reinforce_plus_plus_outcome_advantage(batch.rewards, batch.mask, _Config(gamma=0.9))
    return _apart(batch.ours(settings), theirs)


def _remax(batch: Batch, verl: Any) -> float:
    """With one reward, at the end: a greedy episode with several is compared turn by turn, as conventions.md says."""
    settings = Advantage(estimator=Estimator.REWARD_TO_GO, baseline=Baseline.GREEDY, normalise=Normalise.NONE)
    greedy = replace(batch.groups[0][0], lengths=(2,), rewards=(0.5,), states=("",), values=None)
    single = [
        [replace(each, rewards=(*[0.0] * (len(each.lengths) - 1), sum(each.rewards)), greedy=greedy) for each in group]
        for group in batch.groups
    ]
    last = torch.zeros_like(batch.rewards)
    for at, row in enumerate(batch.mask):
        last[at, int(row.nonzero().max())] = batch.rewards[at].sum()
    theirs, _ = verl.compute_remax_outcome_advantage(last, torch.full((len(last),), 0.5).double(), batch.mask)
    return _apart(batch.ours(settings, single), theirs * batch.mask)


def _gae(batch: Batch, verl: Any) -> float:
    settings = Advantage(
        estimator=Estimator.GAE, baseline=Baseline.CRITIC, normalise=Normalise.BATCH_STD, gamma=0.97, lam=0.9
    )
    theirs, _ = verl.compute_gae_advantage_return(batch.rewards, batch.values, batch.mask, 0.97, 0.9)
    # what verl leaves on masked tokens is one of the differences that are listed
    return _apart(batch.ours(settings), theirs * batch.mask)


# --- losses ----------------------------------------------------------------------------------------------------------


def _our_loss(batch: Batch, settings: LossSettings, advantages: Tensor | None = None) -> tuple[float, Tensor]:
    """Our loss and its gradient by the new log-probs, as a matrix."""
    new, chosen = batch.new.clone().requires_grad_(), batch.mask.bool()
    lengths, rows = chosen.sum(1), chosen.nonzero()[:, 0]
    whole = Normaliser(tokens=int(lengths.sum()), sequences=len(lengths))
    terms = compute_loss(
        LossInputs(
            logprobs_N=new[chosen],
            entropy_N=torch.zeros(whole.tokens),
            advantages_N=(batch.advantages if advantages is None else advantages)[chosen],
            scale_N=compute_token_scale(lengths, rows, settings.aggregation, settings.length, whole).double(),
            unit_N=rows if settings.ratio is Level.EPISODE else None,
            old_N=batch.old[chosen],
            episode_N=rows,
            sampled_N=batch.sampled[chosen],
        ),
        settings,
    )
    terms.loss.backward()
    assert new.grad is not None
    return float(terms.loss.detach()), new.grad


_AGGREGATIONS = {
    "token-mean": Aggregation.TOKEN_MEAN,
    "seq-mean-token-mean": Aggregation.SEQUENCE_MEAN,
    "seq-mean-token-sum-norm": Aggregation.FIXED_LENGTH,
}


def _policy_loss(name: str, settings: LossSettings, aggregation: str, *, values: bool = True) -> Compare:
    """`values=False` compares gradients alone, where peers write another value with the same gradient."""
    settings = replace(settings, aggregation=_AGGREGATIONS[aggregation], length=7)
    config = _Config(
        clip_ratio=settings.clip_low,
        clip_ratio_low=settings.clip_low,
        clip_ratio_high=settings.clip_high,
        clip_ratio_c=settings.dual_clip or 1e6,
        tau_pos=settings.gate_positive,
        tau_neg=settings.gate_negative,
        global_batch_info={"loss_scale_factor": 7},
    )

    def compare(batch: Batch, verl: Any) -> float:
        new = batch.new.clone().requires_grad_()
        function = getattr(verl, f"compute_policy_loss_{name}")
        theirs, _ = function(batch.old, new, batch.advantages, batch.mask, aggregation, config)
        theirs.backward()
        loss, gradient = _our_loss(batch, settings)
        assert new.grad is not None
        return max(_apart(gradient, new.grad), abs(loss - float(theirs.detach())) if values else 0.0)

    return compare


def _kl(theirs: str, value: KLEstimator, gradient: KLEstimator | None = None) -> Compare:
    settings = LossSettings(kl_coef=1.0, kl_estimator=value, kl_gradient=gradient)

    def compare(batch: Batch, verl: Any) -> float:
        results = []
        for ours in (True, False):
            new, chosen = batch.new.clone().requires_grad_(), batch.mask.bool()
            if ours:
                zeros = torch.zeros(int(chosen.sum()), dtype=torch.float64)
                inputs = LossInputs(
                    logprobs_N=new[chosen],
                    entropy_N=zeros,
                    advantages_N=zeros,
                    scale_N=zeros + 1,
                    old_N=batch.old[chosen],
                    reference_N=batch.sampled[chosen],
                )
                loss = compute_loss(inputs, settings).loss
            else:
                loss = verl.kl_penalty(new, batch.sampled, theirs)[chosen].sum()
            loss.backward()
            results.append((loss.detach(), new.grad))
        (one, its), (other, their) = results
        return max(abs(float(one - other)) / float(batch.mask.sum()), _apart(its, their))

    return compare


# --- others ----------------------------------------------------------------------------------------------------------


def _off_policy_mask(batch: Batch, trl: Any) -> float:
    keep = trl.get_off_policy_mask(batch.advantages[:, :1], batch.new, batch.sampled, batch.mask, 0.1)
    plain = replace(LossSettings(kind=LossKind.POLICY_GRADIENT), off_policy=0.1)
    _, gradient = _our_loss(batch, plain)
    _, whole = _our_loss(batch, replace(plain, off_policy=None))
    return _apart(gradient, whole * keep)


def _prime_dppo(batch: Batch, prime: Any) -> float:
    new, chosen = batch.new.clone().requires_grad_(), batch.mask.bool()
    inputs = SimpleNamespace(
        trainer_logprobs=new[chosen],
        inference_logprobs=batch.old[chosen],
        advantages=batch.advantages[chosen],
        loss_mask=torch.ones(int(chosen.sum()), dtype=torch.bool),
        loss_weights=None,
    )
    settings = SimpleNamespace(dppo_mask_low=0.2, dppo_mask_high=0.2, adv_tau=1.0, kl_tau=0.0)
    theirs = prime.default_loss_fn(inputs, settings).loss / chosen.sum()
    theirs.backward()
    loss, gradient = _our_loss(batch, LossSettings(kind=LossKind.DPPO, clip_low=0.2, clip_high=0.2))
    assert new.grad is not None
    return max(abs(loss - float(theirs.detach())), _apart(gradient, new.grad))


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def _loss_cases() -> Iterator[tuple[str, Compare]]:
    ppo = LossSettings(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
    for name in _AGGREGATIONS:
        yield f"ppo, {name}", _policy_loss("vanilla", ppo, name)
        yield (
            f"cispo, {name}",
            _policy_loss("cispo", LossSettings(kind=LossKind.CISPO, clip_low=1.0, clip_high=4.0), name),
        )
        for kind in Divergence:
            bound = LossSettings(kind=LossKind.DPPO, divergence=kind, clip_low=0.1, clip_high=0.15)
            yield f"dppo_{kind}, {name} (gradient)", _policy_loss(f"dppo_{kind}", bound, name, values=False)
    gspo = LossSettings(kind=LossKind.GSPO, ratio=Level.EPISODE, clip_low=0.05, clip_high=0.08)
    yield "gspo", _policy_loss("gspo", gspo, "seq-mean-token-mean")
    yield "sapo", _policy_loss("sapo", LossSettings(kind=LossKind.SAPO), "seq-mean-token-mean")


_LOO = Advantage(baseline=Baseline.LEAVE_ONE_OUT, normalise=Normalise.NONE)
_CASES: dict[str, dict[str, Compare]] = {
    "verl": {
        "grpo": _grouped("grpo", Advantage()),
        "dr_grpo": _grouped("grpo", Advantage(normalise=Normalise.NONE), norm_adv_by_std_in_grpo=False),
        "rloo": _grouped("rloo", _LOO),
        "reinforce_pp": _reinforce_pp,
        "remax": _remax,
        "gae": _gae,
        **dict(_loss_cases()),
        "k1": _kl("k1", KLEstimator.K1),
        "k2": _kl("k2", KLEstimator.K2),
        "k3": _kl("k3", KLEstimator.K3),
        "k3+": _kl("k3+", KLEstimator.K3, KLEstimator.K2),
    },
    "trl": {"off-policy mask": _off_policy_mask},
    "prime-rl": {"dppo": _prime_dppo},
}
_LOADERS: dict[str, Callable[[Path], Any]] = {"verl": read_verl, "trl": read_trl, "prime-rl": read_prime}


if __name__ == "__main__":
    raise SystemExit(main())
