"""Gather vLLM, DeepSpeed, Ray and what they import for a GPU machine that has PyTorch and transformers, and no network.

Files reach such a machine together with this checkout, in transfers of limited size. Each gets a folder of archives and
a script to source there, from the root of the checkout: the first has most of the largest library, the second the rest
and what else a learner and a sampler need, the third Ray. What only other GPUs, quantised models or mixtures of experts
need stays out.

    python bench/gpu_kit.py [--into build/gpu-kit] [--limit-mib 64]
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "locks" / "gpu-kit.lock"
MIB = 2**20
PYTHON = "3.12"
PLATFORMS = [*(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 26, 24, 17)), "manylinux2014_x86_64"]
FROM_SOURCE = ("deepspeed",)

_KERNELS = "vllm/_C_stable_libtorch.abi3.so"
_LEFT_OUT = (
    # other GPUs, mixtures of experts, quantised weights, servers
    "vllm/_moe_C", "vllm/_flashkda", "vllm/_deepselect", "vllm/_flashmla", "vllm/_qutlass", "vllm/vllm-rs",
    "vllm/vllm_flash_attn/_vllm_fa2", "vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100",
    "vllm/entrypoints/serve/instrumentator/static", "deepspeed/ops/csrc",
    # Ray's other languages and libraries
    "ray/jars", "ray/cpp", "ray/include", "ray/rllib", "ray/data", "ray/serve", "ray/tune", "ray/train", "ray/llm",
    "ray/air", "ray/dashboard/client",
)  # fmt: skip
_FIRST_PIECE = 40 * MIB
"""Of an archive that goes in two transfers."""
_METADATA = ("METADATA", "entry_points.txt", "top_level.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A part of the kit."""

    transfer: int
    """The first of two where it is divided."""
    is_divided: bool = False
    packages: tuple[str, ...] = ()
    """None: all that no other archive names."""
    only: str = ""
    """A prefix of the files to take; none of the other archives takes them."""


ARCHIVES = {
    "kernels": Archive(transfer=1, is_divided=True, packages=("vllm",), only=_KERNELS),
    "learner": Archive(
        transfer=2,
        packages=(
            "deepspeed", "hjson", "py-cpuinfo", "pydantic", "pydantic-core", "annotated-types", "typing-inspection",
            "jsonschema", "jsonschema-specifications", "referencing", "rpds-py", "lark", "shtab",
        ),
    ),
    "sampler": Archive(transfer=2),
    "ray": Archive(transfer=3, packages=("ray",)),
}  # fmt: skip

_INSTALL = """\
# Source this from the root of the checkout: . {folder}/install
# It unpacks to $AGYM_GPU_KIT (default /tmp/agym-gpu-kit) and puts that, with the checkout as `agym`, on PYTHONPATH.
export AGYM_GPU_KIT="${{AGYM_GPU_KIT:-/tmp/agym-gpu-kit}}"
mkdir -p "$AGYM_GPU_KIT" && ln -sfn "$PWD" "$AGYM_GPU_KIT/agym"
(cd {folder} && sha256sum --quiet --check SHA256SUMS) && python3 - {folder} "$AGYM_GPU_KIT" <<'END'
import sys, tarfile
from pathlib import Path
kit = Path(sys.argv[2])
for path in sorted(Path(sys.argv[1]).glob("*.tar.xz*")):
    archive = path
    if path.suffix in (".first", ".rest"):
        archive = kit / path.stem
        with archive.open("wb" if path.suffix == ".first" else "ab") as whole:
            whole.write(path.read_bytes())
    if path.suffix != ".first":
        with tarfile.open(archive) as file:
            file.extractall(kit, filter="data")
END
# FlashInfer is not in the kit
export VLLM_USE_FLASHINFER_SAMPLER=0
export PYTHONPATH="$AGYM_GPU_KIT${{PYTHONPATH:+:$PYTHONPATH}}"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "gpu-kit", metavar="FOLDER")
    parser.add_argument("--limit-mib", type=float, default=64.0, help="of a transfer, this checkout included")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheels = _fetch(Path(scratch))
        _check_wheels(wheels.values())
        shutil.rmtree(arguments.into, ignore_errors=True)
        # lzma releases the GIL
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: _pack(name, wheels, arguments.into), ARCHIVES))
    for folder in sorted(arguments.into.iterdir()):
        _write_install(folder)
    return _report(arguments.into, arguments.limit_mib * MIB)


# --- wheels --------------------------------------------------------------------------------------------------------


def _fetch(folder: Path) -> dict[str, Path]:
    """Download what the lock names, hashes checked; return the wheels by package."""
    lines = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    built = [line for line in lines if line.startswith(FROM_SOURCE)]
    (folder / "built.txt").write_text("\n".join(built))
    (folder / "ready.txt").write_text("\n".join(line for line in lines if line not in built))
    common = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    ready = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    platforms = [f"--platform={each}" for each in PLATFORMS]
    _pip("download", *common, *ready, *platforms, f"--dest={folder}", f"--requirement={folder / 'ready.txt'}")
    _pip("wheel", *common, "--no-build-isolation", f"--wheel-dir={folder}", f"--requirement={folder / 'built.txt'}")
    found = {_package(wheel): wheel for wheel in sorted(folder.glob("*.whl"))}
    assert len(found) == len(lines), f"{len(lines)} packages locked, {len(found)} fetched"
    return found


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


def _package(wheel: Path) -> str:
    return wheel.name.split("-")[0].lower().replace("_", "-")


def _check_wheels(wheels: Iterable[Path]) -> None:
    """Refuse libraries of another Python: pip goes by a wheel's name alone."""
    tag = f"cpython-{PYTHON.replace('.', '')}"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            wrong = [name for name in archive.namelist() if "cpython-3" in name and tag not in name]
        if wrong := [name for name in wrong if name.endswith(".so")]:
            raise SystemExit(f"{wheel.name} holds '{wrong[0]}', which is not for Python {PYTHON}")


# --- archives ------------------------------------------------------------------------------------------------------


def _pack(name: str, wheels: dict[str, Path], into: Path) -> None:
    archive = ARCHIVES[name]
    named = {package for each in ARCHIVES.values() if not each.only for package in each.packages}
    packages = archive.packages or sorted(wheels.keys() - named)
    path = into / str(archive.transfer) / f"{name}.tar.xz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wb", preset=6) as stream, tarfile.open(fileobj=stream, mode="w|") as file:
        for package in packages:
            for member, data in _members(wheels[package], archive.only):
                file.addfile(member, BytesIO(data))
    if archive.is_divided:
        _divide(path, into / str(archive.transfer + 1))


def _divide(archive: Path, following: Path) -> None:
    packed = archive.read_bytes()
    archive.unlink()
    archive.with_name(f"{archive.name}.first").write_bytes(packed[:_FIRST_PIECE])
    following.mkdir(parents=True, exist_ok=True)
    (following / f"{archive.name}.rest").write_bytes(packed[_FIRST_PIECE:])


def _members(wheel: Path, only: str) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    elsewhere = tuple(each.only for each in ARCHIVES.values() if each.only)
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if info.is_dir() or not _is_needed(info.filename) or info.filename.startswith(elsewhere) == (not only):
                continue
            member = tarfile.TarInfo(_installed_name(info.filename))
            member.size = info.file_size
            member.mode = (info.external_attr >> 16) & 0o777 or 0o644
            yield member, archive.read(info)


def _is_needed(name: str) -> bool:
    folder, _, file = name.partition("/")
    if ".data/scripts/" in name:
        return False
    return file in _METADATA if folder.endswith(".dist-info") else not name.startswith(_LEFT_OUT)


def _installed_name(name: str) -> str:
    """Where an installer puts a file: a wheel's data for the library folder lie in a folder of their own."""
    folder, _, rest = name.partition("/")
    return rest.removeprefix("purelib/").removeprefix("platlib/") if folder.endswith(".data") else name


def _write_install(folder: Path) -> None:
    archives = sorted(folder.glob("*.tar.xz*"))
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in archives]
    (folder / "SHA256SUMS").write_text("".join(sums))
    (folder / "install").write_text(_INSTALL.format(folder=folder.relative_to(ROOT)))


# --- sizes ---------------------------------------------------------------------------------------------------------


def _report(into: Path, limit: float) -> int:
    checkout = _checkout_bytes()
    print(f"checkout: {checkout / MIB:.1f} MiB")
    too_large = []
    for folder in sorted(into.iterdir()):
        sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
        total = sum(sizes.values()) + checkout
        parts = ", ".join(f"{name} {size / MIB:.1f}" for name, size in sizes.items() if ".tar." in name)
        print(f"transfer {folder.name}: {total / MIB:.1f} of {limit / MIB:g} MiB with the checkout ({parts})")
        too_large += [folder.name] * (total > limit)
    if too_large:
        print(f"transfer {', '.join(too_large)} is too large", file=sys.stderr)
    return 1 if too_large else 0


def _checkout_bytes() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths: Sequence[Path] = [ROOT / name for name in listed.split("\0") if name]
    # as an archive of files holds them: in blocks, with a header each
    return sum(1024 + path.stat().st_size for path in paths if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    sys.exit(main())
