"""`agym serve MODEL`: the endpoint that is used in training, over a model that is not being trained: any client of
OpenAI's API can use it, on this machine only. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..export import add_checkpoint
from ..invocation.engines import check_model_folder, prepare_engine
from ..invocation.pages import check_port
from ..invocation.shell import Exit, Shell, UsageError

if TYPE_CHECKING:
    from ...machine import Machine
    from ...runtime.policy_endpoint.policy import Policy
    from ...runtime.protocols import Sampler

__all__ = ["add_arguments", "run"]

_CONTEXT = 4096
_SLOTS_CPU, _SLOTS_GPU = 4, 64
_KEY = re.compile(r"[!-~]{8,200}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="a model folder, the folder of a run, a name of 'agym models list', or a hub id"
    )
    add_checkpoint(parser)
    parser.add_argument("--port", type=int, metavar="N", help="1 to 65535 (default: one that is free)")
    parser.add_argument("--key", metavar="KEY", help="the API key that clients must send (default: a new one)")
    parser.add_argument(
        "--context",
        type=int,
        metavar="N",
        help=f"tokens of a conversation, the reply included (default: {_CONTEXT}, or what the model holds)",
    )


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    check_port(arguments.port)
    if arguments.key is not None and not _KEY.fullmatch(arguments.key):
        raise UsageError("--key takes 8 to 200 letters, digits and signs, without a space")
    folder = _find_model(arguments, shell)
    context = _find_context(folder, arguments.context)
    from ...machine import inspect_machine

    machine = inspect_machine()
    prepare_engine(shell.environ, threads=machine.cores, cpu=not machine.gpus)
    service = _Service(
        folder=folder,
        name=(shell.cwd / arguments.model).resolve().name,
        context=context,
        port=arguments.port,
        key=arguments.key or f"agym-{secrets.token_hex(24)}",
    )
    asyncio.run(_serve(service, machine, shell))
    return Exit.RIGHT


# --- which model ---------------------------------------------------------------------------------------------------


def _find_model(arguments: argparse.Namespace, shell: Shell) -> Path:
    from ...dsl.model.recipe import Model
    from ...runtime.storage.run_reader import is_run
    from ...runtime.workers.build import find_model

    given = shell.cwd / os.path.expanduser(arguments.model)
    if is_run(given):
        return _find_saved(given, arguments.checkpoint or "latest", arguments.model)
    if arguments.checkpoint is not None:
        raise UsageError(f"'{arguments.model}' is not the folder of a run, which --checkpoint needs")
    folder = Path(find_model(Model(path=str(given) if given.is_dir() else arguments.model)).path)
    check_model_folder(folder, arguments.model)
    return folder


def _find_saved(root: Path, wanted: str, given: str) -> Path:
    from ...runtime.storage.run_reader import RunReader

    archive = RunReader(root)
    kept = archive.kept(wanted)
    if kept.model is None:
        raise UsageError(
            f"step {kept.step} holds only the learner's state: write its model with 'agym export {given} "
            f"--checkpoint {kept.step} FOLDER', and serve that folder"
        )
    archive.check(kept)
    return kept.model


def _find_context(folder: Path, wanted: int | None) -> int:
    """Return the requested context if the model supports it; else the default, or less if it supports less."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    most = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    if wanted is None:
        return min(_CONTEXT, most or _CONTEXT)
    if not 16 <= wanted <= (most or wanted):
        limit = "" if most is None else f", and at most {most}, which is what the model holds"
        raise UsageError(f"--context must be at least 16{limit}")
    return wanted


# --- serving -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    folder: Path
    name: str
    context: int
    port: int | None
    key: str


async def _serve(service: _Service, machine: Machine, shell: Shell) -> None:
    from ...runtime.policy_endpoint.endpoint import PolicyEndpoint
    from ...runtime.policy_endpoint.server import serve_endpoint

    endpoint = PolicyEndpoint(name=service.name, time=time.time)
    async with AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(serve_endpoint(endpoint, port=service.port or 0))
        except OSError as error:
            problem = os.strerror(error.errno or 0)
            raise UsageError(f"--port {service.port}: {problem}; without --port a free one is taken") from error
        sampler, policy = _load(service, machine)
        stack.push_async_callback(sampler.close)
        policy.check()
        stack.enter_context(endpoint.open_service(policy, key=service.key))
        ended = _await_signal()
        shell.out.write(f"model {service.name}, {service.context} tokens of context; Ctrl-C ends it\n")
        shell.out.write(f"export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={service.key}\n")
        shell.out.flush()
        await ended.wait()


def _load(service: _Service, machine: Machine) -> tuple[Sampler, Policy]:
    from ...dsl.model.recipe import DType
    from ...runtime.agents.chat import Chat
    from ...runtime.backends.hf_models import ModelSource, load_tokenizer
    from ...runtime.backends.registry import DEFAULT_SAMPLER
    from ...runtime.policy_endpoint.fairness import FairQueue
    from ...runtime.policy_endpoint.policy import Policy
    from ...runtime.protocols import SamplerSettings, SamplingSettings

    slots = _SLOTS_GPU if machine.gpus else _SLOTS_CPU
    tokenizer = load_tokenizer(ModelSource(path=str(service.folder)))
    settings = SamplerSettings(
        model=service.folder,
        dtype=DType.BF16 if machine.gpus else DType.FP32,
        context_tokens=service.context,
        slots=slots,
        eager=not machine.gpus,
        weights_follow=False,
    )
    sampler: Sampler = DEFAULT_SAMPLER.load("sampler")(settings, tokenizer.decode)
    policy = Policy(
        sampler,
        Chat(tokenizer),
        sampling=SamplingSettings(),
        context_tokens=service.context,
        tokens_per_reply=service.context,
        queue=FairQueue(slots),
        clock=time.perf_counter,
        client_samples=True,
    )
    return sampler, policy


def _await_signal() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets: they are a requested end, not a failure."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    return ended
