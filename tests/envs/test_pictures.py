"""Pictures of what is seen: valid and small, only where they are asked for, and checked before they are kept."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from agym.envs.babyai import create as create_babyai
from agym.envs.gymnasium import create as create_gymnasium
from agym.envs.miniwob import create as create_miniwob
from agym.envs.pictures import LARGEST_PICTURE, encode_png, is_picture, write_png
from agym.envs.protocol import Env, Json, Observation
from agym.envs.websites import create as create_websites
from agym.envs.wire import observation_from, observation_to
from agym.machine import find_browser

Create = Callable[[Mapping[str, Json]], Env]
GRIDS: list[tuple[Create, Mapping[str, Json]]] = [
    (create_babyai, {}),
    (create_gymnasium, {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}}),
    (create_gymnasium, {"id": "Taxi-v4"}),
]


def pixels_of(data: bytes) -> np.ndarray:
    """Read a PNG of RGB bytes without filters, as ours are, and check each of its sums."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, dict[bytes, bytes]()
    while at < len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        assert checksum == zlib.crc32(name + content)
        found[name] = content
        at += 12 + length
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *kind = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert kind == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


@pytest.mark.parametrize(("create", "options"), GRIDS, ids=["babyai", "FrozenLake", "Taxi"])
def test_a_grid_world_draws_each_observation_where_it_is_asked_to(create: Create, options: Mapping[str, Json]) -> None:
    drawing, plain = create({**options, "screenshots": True}), create(options)
    task = plain.tasks("train")[0]
    actions = plain.expert(task, 0)
    assert actions
    seen, unseen = drawing.reset(task, 0), plain.reset(task, 0)
    pictures = [seen.picture]
    for action in actions[:4]:
        step = drawing.step(action)
        pictures.append(step.observation.picture)
        assert plain.step(action).observation == step.observation  # except for the picture
    assert (unseen.text, unseen.picture) == (seen.text, None)
    for picture in pictures:
        assert picture is not None
        assert is_picture(picture)
        assert len(np.unique(pixels_of(picture).reshape(-1, 3), axis=0)) > 2
    assert len(set(pictures)) > 1


def test_the_same_episode_has_the_same_pictures() -> None:
    first, second = (create_babyai({"screenshots": True}) for _ in range(2))
    task = first.tasks("train")[5]
    assert first.reset(task, 0).picture == second.reset(task, 0).picture


def test_a_picture_that_is_too_large_is_drawn_in_fewer_pixels() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (500, 600, 3), np.uint8)
    data = encode_png(noise)
    assert data is not None
    assert len(data) <= LARGEST_PICTURE
    assert (pixels_of(data) == noise[::4, ::4]).all()


BLACK = write_png(2, 2, bytes(12))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"GIF89a" + bytes(90), b"<svg xmlns='http://www.w3.org/2000/svg'/>", BLACK[:20], BLACK[1:],
        BLACK + bytes(LARGEST_PICTURE), write_png(5000, 1, bytes(15000)), BLACK.replace(b"IHDR", b"IDAT"),
        BLACK[:16] + bytes(4) + BLACK[20:],
    ],
    ids=["nothing", "GIF", "SVG", "cut off", "no signature", "too many bytes", "too wide", "no header", "no width"],
)  # fmt: skip
def test_what_is_no_small_png_is_no_picture(data: bytes) -> None:
    assert is_picture(BLACK)
    assert not is_picture(data)


def test_pictures_are_sent_and_what_is_none_takes_no_room() -> None:
    sent = observation_to(Observation(text="x", picture=BLACK))
    assert observation_from(sent).picture == BLACK
    assert "picture" not in observation_to(Observation(text="x"))
    large = b64encode(BLACK + bytes(10 * LARGEST_PICTURE)).decode()
    for text in ("no base64!", "\u00fc", large, b64encode(b"<svg/>").decode()):
        assert observation_from({**sent, "picture": text}).picture == b""


@pytest.mark.heavy
@pytest.mark.skipif(find_browser() is None, reason="there is no browser")
@pytest.mark.parametrize("create", [create_miniwob, create_websites], ids=["miniwob", "websites"])
def test_a_web_environment_shows_its_window_where_it_is_asked_to(create: Create) -> None:
    drawing, plain = create({"screenshots": True}), create({})
    task = plain.tasks(plain.spec.splits[0])[0]
    try:
        assert plain.reset(task, 0).picture is None
        for seen in (drawing.reset(task, 0), drawing.step("nonsense").observation):
            assert seen.picture is not None
            assert is_picture(seen.picture)
            assert len(seen.picture) > 1000
    finally:
        drawing.close()
        plain.close()
