"""Claim: logits rounded to bf16 give log-probs an error of a hundredth of a nat, an fp32 head gives none; on a GPU it
costs less than 3 % of an update, so it is the default there, and on a CPU more. In fp16 the head's gradients underflow.

The head is timed with and without, forward and backward, and so is one block of the model; an update is the head and
all blocks, on the GPU where there is one. Errors are those of log-probs against fp32 weights of the same
values. Zeros are the share of the head's gradient that is lost where the loss is a mean over so many tokens.

    python bench/head.py [--tokens 256] [--rounds 5] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from statistics import median

import torch
from agym.runtime.learning.loss import Head, compute_logprobs
from paired import alternated
from torch import Tensor

SHAPES: Mapping[str, tuple[int, int, int, int, int, int]] = {
    "0.5B": (896, 4864, 14, 2, 24, 151_936),
    "1.5B": (1536, 8960, 12, 2, 28, 151_936),
    "7B": (3584, 18944, 28, 4, 28, 152_064),
}
"""Width, feed-forward, heads, key-value heads, blocks, vocabulary: those of Qwen2.5."""
_ELEMENTS = 1 << 25


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the smallest shape, one round")
    arguments = parser.parse_args()
    names = ["0.5B"] if arguments.quick else list(SHAPES)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    print(f"update with an fp32 head by one without, {arguments.tokens} tokens on {device.type}\n")
    print("| shape | a block, s | head, s | fp32 head, s | update |\n|---|---|---|---|---|")
    for name in names:
        block, plain, wide = _measure(name, arguments.tokens, 1 if arguments.quick else arguments.rounds, device)
        whole = SHAPES[name][4] * block
        print(f"| {name} | {block:.3f} | {plain:.3f} | {wide:.3f} | {(whole + wide) / (whole + plain):.3f} |")
    _print_errors()
    _print_underflow()
    return 0


def _measure(name: str, tokens: int, rounds: int, device: torch.device) -> tuple[float, float, float]:
    width, _, _, _, _, vocab = SHAPES[name]
    block, states = _make_block(name, device), torch.randn(1, tokens, width, device=device, dtype=torch.bfloat16)
    weight = (torch.randn(vocab, width, device=device, dtype=torch.bfloat16) * width**-0.5).requires_grad_()
    targets = torch.randint(vocab, (tokens,), device=device)

    def logprobs(head: Head) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            hidden = states[0].clone().requires_grad_()
            compute_logprobs(hidden, weight, targets, 1.0, _ELEMENTS, head)[0].sum().backward()
            weight.grad = None
            _wait(device)

        return work

    async def pass_block() -> None:
        block(states.clone().requires_grad_()).sum().backward()
        _wait(device)

    ways = {"block": pass_block, "plain": logprobs(Head()), "wide": logprobs(Head(fp32=True))}
    spent = asyncio.run(alternated(ways, rounds))
    block_s, plain_s, wide_s = (median(each.wall for each in found) for found in spent.values())
    return block_s, plain_s, wide_s


def _make_block(name: str, device: torch.device) -> Callable[[Tensor], Tensor]:
    from transformers import AutoConfig, AutoModel

    width, inner, heads, kv_heads, _, _ = SHAPES[name]
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=8,
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        num_hidden_layers=1,
    )
    model = AutoModel.from_config(config, dtype=torch.bfloat16).to(device)
    return lambda states: model(inputs_embeds=states, use_cache=False).last_hidden_state


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _print_errors() -> None:
    hidden, weight = torch.randn(64, 896).bfloat16(), (torch.randn(32_768, 896) * 4 * 896**-0.5).bfloat16()
    targets = torch.randint(32_768, (64,))
    exact = compute_logprobs(hidden.float(), weight.float(), targets, 1.0, _ELEMENTS)[0]
    print("\n| head | mean error of a log-prob | largest |\n|---|---|---|")
    for label, head in (("logits rounded to bf16", Head()), ("fp32 head", Head(fp32=True))):
        error = (compute_logprobs(hidden, weight, targets, 1.0, _ELEMENTS, head)[0] - exact).abs()
        print(f"| {label} | {error.mean():.1e} | {error.max():.1e} |")


def _print_underflow() -> None:
    """The gradient of a mean log-prob, rounded as each precision does: of the logits, and of the head after it."""
    hidden, weight = torch.randn(256, 256), torch.randn(8192, 256) * 8 * 256**-0.5
    grad_NV = torch.softmax(hidden @ weight.T, -1)
    # tokens that the policy itself drew, at an entropy of a fraction of a nat
    grad_NV[torch.arange(256), torch.multinomial(grad_NV, 1)[:, 0]] -= 1
    print("\n| tokens of an update | zeros in fp16 | in bf16 |\n|---|---|---|")
    for tokens in (256, 2_000, 20_000, 200_000):
        shares = []
        for dtype in (torch.float16, torch.bfloat16):
            rounded = (grad_NV / tokens).to(dtype).float()
            shares.append(float(((rounded.T @ hidden).to(dtype) == 0).float().mean()))
        print(f"| {tokens} | {shares[0]:.1%} | {shares[1]:.1%} |")


if __name__ == "__main__":
    sys.exit(main())
