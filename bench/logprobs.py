"""Claim: log-probs of a vocabulary of 150 000 need a fifth of the naive form's memory.

Log-probs and entropies of 2048 tokens and their gradients, in fp32, each form in a process of its own: all logits at
once, as autograd keeps them, and `token_logprobs` with the number of logits that a learner holds. Memory is what the
process's largest size grew by while it computed; the gradients of the hidden states and of the output layer are in it,
as any form has to make them. Both forms print their sums, which must agree.

    python bench/logprobs.py [--tokens 2048] [--width 896] [--vocab 151936] [--quick]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

import torch
from agym.runtime.learning.loss import compute_logprobs
from agym.runtime.protocols import LearnerSettings
from torch import Tensor

Form = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
_AGREE = 1e-4
"""Relative difference of the sums that is rounding."""


def main() -> int:
    arguments = _arguments()
    if arguments.form:
        print(json.dumps(measured(FORMS[arguments.form], arguments.tokens, arguments.width, arguments.vocab)))
        return 0
    sizes = (256, 64, 8192) if arguments.quick else (arguments.tokens, arguments.width, arguments.vocab)
    found = {form: _apart(form, *sizes) for form in FORMS}
    naive, ours = found["naive"], found["in pieces"]
    print(f"{sizes[0]} tokens, width {sizes[1]}, vocabulary {sizes[2]}\n")
    print("| form | gradients alone, MiB | peak, MiB | share of naive | s |\n|---|---|---|---|---|")
    gradients = 4 * sizes[1] * (sizes[0] + sizes[2]) / 2**20
    for form, row in found.items():
        share = row["bytes"] / naive["bytes"]
        print(f"| {form} | {gradients:.0f} | {row['bytes'] / 2**20:.0f} | {share:.3f} | {row['seconds']:.1f} |")
    agree = abs(ours["sum"] - naive["sum"]) <= _AGREE * abs(naive["sum"])
    print(f"\nsums: {naive['sum']:.4f} and {ours['sum']:.4f}: {'agree' if agree else 'DIFFER'}")
    return 0 if agree else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--width", type=int, default=896)
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--quick", action="store_true", help="so small that memory says nothing")
    parser.add_argument("--form", choices=FORMS, help="this one alone, in this process")
    return parser.parse_args()


def _apart(form: str, tokens: int, width: int, vocab: int) -> dict[str, float]:
    sizes = ["--tokens", str(tokens), "--width", str(width), "--vocab", str(vocab)]
    command = [sys.executable, str(Path(__file__).resolve()), "--form", form, *sizes]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def measured(form: Form, tokens: int, width: int, vocab: int) -> dict[str, float]:
    draws = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(tokens, width, generator=draws).requires_grad_()
    head_VD = (torch.randn(vocab, width, generator=draws) / width**0.5).requires_grad_()
    targets_N = torch.randint(vocab, (tokens,), generator=draws)
    before, started = _largest(), perf_counter()
    logprobs_N, entropy_N = form(hidden_ND, head_VD, targets_N)
    (logprobs_N.sum() + 0.01 * entropy_N.sum()).backward()
    seconds, after = perf_counter() - started, _largest()
    assert hidden_ND.grad is not None
    assert head_VD.grad is not None
    total = hidden_ND.grad.abs().sum() + head_VD.grad.abs().sum() + logprobs_N.detach().sum()
    return {"bytes": after - before, "seconds": seconds, "sum": float(total)}


def _largest() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def naive(hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    logp_NV = torch.log_softmax(hidden_ND @ head_VD.T, dim=-1)
    return logp_NV.gather(1, targets_N[:, None])[:, 0], -(logp_NV.exp() * logp_NV).sum(-1)


def in_pieces(hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    return compute_logprobs(hidden_ND, head_VD, targets_N, 1.0, LearnerSettings(model=Path()).logit_elements)


FORMS: Mapping[str, Form] = {"naive": naive, "in pieces": in_pieces}


if __name__ == "__main__":
    sys.exit(main())
