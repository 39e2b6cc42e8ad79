"""Claim: on a GPU both engines agree to bf16's rounding, memory is what was planned, and the seams cost little.

A model of Qwen3-0.6B's shape with random weights, made here, in bf16, sampler and learner on one GPU. Parts, most
informative per minute first, each in a process with a time limit of its own, so that what fails in one ends no other:
imports and versions; a sampler's start, syncs with proof, the learner's log-probs of what was sampled; sleep and wake;
updates under ZeRO 1 to 3, their MFU (6 N D over the device's dense bf16 peak) and their memory compared with the
plan's; updates that compute a shared prompt once; a rollout compared with a bare loop on the same engine; weights from
one process to another by CUDA IPC; a run of 20 steps under Ray; LoRA. Each line is printed as soon as it is known, and
written as JSON to a file. Ends with 1 if a part failed, or if a bound was broken that a correct program keeps on any
machine; such lines begin with '!'.

    python bench/gpu.py [--part NAME]... [--budget-s 600] [--size whole|quick|small|mini] [--device cuda|cpu] [--eager]
                        [--json FILE]

On a CPU the same code runs in fp32 with miniature models: that shows that the bench works, and its figures say nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

from gpu_parts import PARTS, SIZES, Bench

__all__ = ["main", "run_part"]

Say = Callable[[Mapping[str, object]], None]
_LEAST_S = 30.0
"""With less time than this, no part is begun."""
_TAIL = 1500
"""Characters of a failed part's output that are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.rows is not None:
        return _be_part(options)
    device = _device_name(options.device)
    if device is None:
        print("not run: PyTorch finds no CUDA device here; --device cpu runs miniature parts without one")
        return 2
    print(f"{device}, size {options.size}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        failed = _run_parts(options, device, Path(folder))
    print(f"\nfailed: {', '.join(failed)}" if failed else "\nall held", flush=True)
    return 1 if failed else 0


def _run_parts(options: argparse.Namespace, device: str, folder: Path) -> list[str]:
    failed, ends = list[str](), monotonic() + options.budget_s
    for name in [name for name in PARTS if name in (options.part or PARTS)]:
        left = ends - monotonic()
        print(f"\n{name}: {PARTS[name].says}", flush=True)
        if left < _LEAST_S:
            print("  not begun: the budget is spent", flush=True)
            failed.append(name)
        else:
            say, limit_s = _printer(name, device, options), min(left, PARTS[name].limit_s)
            held = run_part(name, options.size, options.device, folder, say, limit_s=limit_s, eager=options.eager)
            failed += [] if held else [name]
    return failed


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="one of them; may be given again")
    parser.add_argument("--budget-s", type=float, default=3600.0, metavar="S", help="seconds for all parts together")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=SIZES, help="of the model and the work; whole on a GPU, mini on a CPU")
    parser.add_argument("--eager", action="store_true", help="without captured graphs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="each line as JSON too, after what the file holds")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.size = options.size or ("whole" if options.device == "cuda" else "mini")
    return options


def _device_name(device: str) -> str | None:
    """Ask in another process, as this one stays off the device."""
    if device == "cpu":
        return "cpu"
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def _printer(part: str, device: str, options: argparse.Namespace) -> Say:
    def say(row: Mapping[str, object]) -> None:
        value = row["value"]
        shown = f"{value:,.4g}" if isinstance(value, float) else value
        mark = "!" if row["held"] is False else " "
        print(f"{mark} {row['what']}: {shown} {row['unit']}".rstrip(), flush=True)
        if options.json is not None:
            with options.json.open("a") as file:
                file.write(json.dumps({"part": part, "device": device, "size": options.size, **row}) + "\n")

    return say


# --- a part, from outside ------------------------------------------------------------------------------------------


def run_part(name: str, size: str, device: str, folder: Path, say: Say, *, limit_s: float, eager: bool = False) -> bool:
    """Run a part in a process of its own, with its rows as they come; return whether it ended well and all held."""
    held, started = True, monotonic()
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output:
        told = [
            "--part",
            name,
            "--size",
            size,
            "--device",
            device,
            "--folder",
            str(folder),
            *(["--eager"] if eager else []),
        ]
        process = _start([*told, "--rows", str(writing)], device, writing, output)
        os.close(writing)
        timer = Timer(limit_s, _end, [process])
        timer.start()
        with os.fdopen(reading) as rows:
            for line in rows:
                row = json.loads(line)
                held &= row["held"] is not False
                say(row)
        code = process.wait()
        timer.cancel()
        # what it started ends with it
        _end(process)
        spent = monotonic() - started
        if code:
            output.seek(0)
            why = f"ended after {limit_s:.0f} s" if spent >= limit_s else f"exit {code}"
            tail = output.read().decode(errors="replace")[-_TAIL:]
            say({"what": "failed", "value": f"{why}\n{tail}", "unit": "", "held": False})
    say({"what": "the whole part", "value": spent, "unit": "s", "held": None})
    return held and code == 0


def _start(told: Sequence[str], device: str, writing: int, output: Any) -> subprocess.Popen[bytes]:
    from agym.runtime.backends.engine_variables import missing_variables

    return subprocess.Popen(
        [sys.executable, __file__, *told],
        env={**os.environ, **missing_variables(os.environ, threads=1, cpu=device == "cpu")},
        pass_fds=[writing],
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


# --- a part, from inside -------------------------------------------------------------------------------------------


def _be_part(options: argparse.Namespace) -> int:
    rows = os.fdopen(options.rows, "w")

    def say(row: Mapping[str, object]) -> None:
        rows.write(json.dumps(row) + "\n")
        rows.flush()

    size = SIZES[options.size]
    bench = Bench(size=size, device=options.device, folder=options.folder, eager=options.eager, say=say)
    asyncio.run(PARTS[options.part[0]].work(bench))
    return 0


if __name__ == "__main__":
    sys.exit(main())
