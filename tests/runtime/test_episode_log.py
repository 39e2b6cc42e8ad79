"""What the log says of training: rewards, advantages, masks, reasons and log-probs as the update had them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.pictures import LARGEST_PICTURE, write_png
from agym.envs.protocol import Observation, Step
from agym.runtime.protocols import TrainSequence
from agym.runtime.reporting import EventKind
from agym.runtime.rollout.episode import Segment
from agym.runtime.storage.episode_log import EpisodeEntry, EpisodePurpose, episode_lines, episode_pictures
from agym.runtime.storage.episode_reader import (
    EPISODES,
    MEDIA,
    TRAIN_LOG,
    compress_member,
    list_members,
    read_chunks,
    read_picture,
)
from agym.runtime.storage.training_log import choose_groups

from .conftest import Echo, echoing, episodes_of, trained_in
from .factories import make_episode, make_segment, make_turn

LEARNS = echoing("""
algorithm: {use: grpo, group_size: 4, groups_per_step: 6, lr: 4, kl: {coef: 0.1}}
schedule: [{stage: only, turns: 3, until: step >= 3}]
eval: {every: 3, turns: 3, samples: 2, greedy: true}
checkpoint: {every: 3, episodes: all}
""")


def watched(run: Any) -> list[TrainSequence]:
    """Run, and return the sequences of all updates."""
    seen: list[TrainSequence] = []
    update = run.learner.update

    def spy(sequences: Any, settings: Any) -> Any:
        seen.extend(sequences)
        return update(sequences, settings)

    run.learner.update = spy
    run.go()
    return seen


def by_ids(sequences: list[TrainSequence]) -> dict[tuple[int, ...], list[TrainSequence]]:
    found = defaultdict(list)
    for each in sequences:
        found[tuple(each.ids.tolist())].append(each)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("algorithm.importance={correction: truncate}", "model.dtype=bf16"),
        ("algorithm.kl.place=reward",),
        ("algorithm.use=gigpo",),
        ("algorithm.use=reinforce_pp", "algorithm.kl={coef: 0.1, place: reward}"),
        ("agent.on_invalid_turn=mask_turn",),
        ("algorithm.filter={groups: std > 0.2, top_share: 0.5}",),
        ("algorithm.filter.episodes=turns < 3",),
    ],
)
def test_the_log_says_what_the_update_was_given(new_run: Any, settings: tuple[str, ...]) -> None:
    run = new_run(*settings, text=LEARNS)
    trained = by_ids(watched(run))
    records = [each for step in (1, 2, 3) for each in trained_in(run.root, step)]
    assert len(records) == 3 * 24
    for record in records:
        (segment,) = record["segments"]
        given = trained.get(tuple(segment["ids"]), [])
        assert record["training"]["kept"] == (record["training"]["reason"] == "")
        if not record["training"]["kept"]:
            continue
        mask, advantages = np.zeros(len(segment["ids"]), bool), np.zeros(len(segment["ids"]))
        for turn in record["turns"]:
            mask[turn["start"] : turn["end"]] = turn["trained"]
            if turn["end"] > turn["start"]:
                advantages[turn["start"] : turn["end"]] = turn["advantage"]
        # two episodes may have said the same
        (one,) = [each for each in given if np.allclose(each.advantages, advantages, atol=1e-5)][:1]
        assert np.array_equal(one.loss_mask, mask)
        if one.reference_logprobs is not None:
            assert np.allclose(segment["reference_logprobs"], one.reference_logprobs, atol=1e-5)
        if "learner_logprobs" in segment:
            assert one.old_logprobs is not None
            assert np.allclose(segment["learner_logprobs"], one.old_logprobs, atol=1e-5)
    if "algorithm.kl.place=reward" in settings:
        assert all("reference_logprobs" in each["segments"][0] for each in records)
    if settings and "importance" in settings[0]:
        assert any("learner_logprobs" in each["segments"][0] for each in records)


def test_the_log_says_why_an_episode_was_left_out(new_run: Any) -> None:
    run = new_run("algorithm.filter={groups: std > 0, top_share: 0.6}", "agent.on_truncated=mask", text=LEARNS)
    run.go()
    rows, reasons = run.steps(), Counter[str]()
    for step, row in enumerate(rows, 1):
        records = trained_in(run.root, step)
        own = Counter(each["training"]["reason"] for each in records)
        assert own["truncated"] == row.get("filter/masked_truncated", 0)
        assert (
            len({each["group"] for each in records if each["training"]["reason"] not in ("group", "top_share")})
            == (row["filter/kept_groups"])
        )
        reasons += own
    assert {"", "group", "top_share", "truncated"} <= reasons.keys()


def test_groups_are_whole_and_chosen_by_the_seed_alone(new_run: Any) -> None:
    whole, some = (new_run(f"checkpoint.episodes={each}", text=LEARNS) for each in ("all", "{train: 2}"))
    whole.go(), some.go()
    all_lines, chosen = episodes_of(whole.root)[TRAIN_LOG], episodes_of(some.root)[TRAIN_LOG]
    groups = Counter(each["group"] for each in chosen)
    assert set(groups.values()) == {4}
    assert Counter(each["total_step"] for each in chosen) == dict.fromkeys((1, 2, 3), 8)
    assert [each for each in all_lines if each["group"] in groups] == chosen
    assert len({each.rpartition("-")[2] for each in groups}) > 2, "not the same places at each step"


def test_choosing_more_groups_than_there_are_takes_all() -> None:
    groups: list[Any] = [object()] * 5
    assert choose_groups(groups, 5, 1) == choose_groups(groups, None, 1) == choose_groups(groups, 9, 1) == [*range(5)]
    assert choose_groups(groups, 2, 1) == choose_groups(groups, 2, 1)
    assert choose_groups([], 2, 1) == choose_groups(groups, 0, 1) == []


def test_sampled_and_greedy_episodes_of_an_evaluation_are_told_apart(new_run: Any) -> None:
    run = new_run(text=LEARNS)
    run.go()
    records = episodes_of(run.root)["step-000003-eval.jsonl"]
    assert Counter(each["mode"] for each in records) == {"sampled": 3 * 2, "greedy": 3}
    modes = {each["group"]: set[str]() for each in records}
    for each in records:
        modes[each["group"]].add(each["mode"])
    assert set(map(len, modes.values())) == {1}
    assert not any("training" in each for each in records)


def test_a_run_and_its_episodes_record_the_version_of_their_prompt(new_run: Any) -> None:
    found = []
    for settings in ((), ("seed=5",), ("agent.format=react",)):
        run, events = new_run(*settings, text=LEARNS), []
        run.reporter.event = lambda kind, text, kept=events, **facts: kept.append((kind, text))
        run.go()
        (version,) = {each["prompt"] for records in episodes_of(run.root).values() for each in records}
        assert [text for kind, text in events if kind is EventKind.PROMPT] == [f"echo: {version}"]
        found.append(version)
    assert found[0] == found[1] != found[2]


def test_demonstrations_are_sampled_and_say_what_they_are(new_run: Any) -> None:
    run = new_run("schedule.0.algorithm.data.limit=50")
    run.go()
    (records,) = (lines for name, lines in episodes_of(run.root).items() if name == "demonstrations-imitate.jsonl")
    assert len(records) == 32
    assert {each["purpose"] for each in records} == {"demonstration"}
    assert not any("mode" in each for each in records)


def test_what_is_no_number_is_null_and_does_not_end_a_run() -> None:
    segment = Segment(
        ids=np.array([1, 2], np.int32),
        sampled=np.array([False, True]),
        logprobs=np.array([0, np.nan], np.float32),
        versions=np.array([-1, 0], np.int32),
    )
    episode = make_episode([segment], [])
    (line,) = episode_lines(
        [EpisodeEntry(episode=episode, group=0)], purpose=EpisodePurpose.TRAIN, total_step=1, stage="s"
    ).splitlines()
    assert json.loads(line)["segments"][0]["logprobs"][-1] is None


def test_other_bytes_are_no_members(tmp_path: Path) -> None:
    (tmp_path / EPISODES).mkdir()
    log = tmp_path / EPISODES / TRAIN_LOG
    good = compress_member(1, b"{}\n")
    for bad in (b"", b"\x1f\x8b", good[:-1], b"\x1f\x8b\x08\x00" + good[4:], good[:24] + b"\xff" * 8 + good[32:]):
        log.write_bytes(good + bad)
        assert [member.step for member in list_members(log)] == [1]
        assert [chunk.data for chunk in read_chunks(log)] == [b"{}\n"]


# --- pictures ------------------------------------------------------------------------------------------------------

PICTURE, OTHER = (write_png(1, 1, bytes([shade] * 3)) for shade in (0, 255))
HOSTILE = (b"<svg onload='alert(1)'/>", PICTURE + bytes(LARGEST_PICTURE))


def drawn_line(*pictures: bytes | None) -> tuple[bytes, dict[str, bytes]]:
    """The line of an episode with a first picture and those of its turns, and the pictures that are to be kept."""
    first, *others = pictures
    turns = [make_turn(at, at + 1, picture=picture) for at, picture in enumerate(others)]
    episode = make_episode([make_segment([True] * len(others))], turns, picture=first)
    entry = EpisodeEntry(episode=episode, group=0)
    lines = episode_lines([entry], purpose=EpisodePurpose.EVAL, total_step=1, stage="only")
    return lines, episode_pictures([entry])


def test_pictures_are_kept_once_by_their_hashes() -> None:
    line, kept = drawn_line(PICTURE, OTHER, None, PICTURE)
    names = [sha256(data).hexdigest() for data in (PICTURE, OTHER)]
    assert kept == dict(zip(names, (PICTURE, OTHER), strict=True))
    record = json.loads(line)
    assert [record["picture"], *(turn.get("picture") for turn in record["turns"])] == [*names, None, names[0]]
    assert "dropped_pictures" not in record


def test_what_is_no_small_png_is_dropped_and_counted() -> None:
    line, kept = drawn_line(*HOSTILE, PICTURE)
    record = json.loads(line)
    assert record["dropped_pictures"] == 2
    assert "picture" not in record
    assert [turn.get("picture") for turn in record["turns"]] == [None, *kept]
    assert list(kept.values()) == [PICTURE]


def test_an_episode_without_pictures_has_no_word_of_them() -> None:
    line, kept = drawn_line(None, None)
    assert b"picture" not in line
    assert kept == {}


class DrawnEcho(Echo):
    """An environment whose every picture is a good one and whose first is none."""

    def reset(self, task: str, seed: int) -> Observation:
        return replace(super().reset(task, seed), picture=HOSTILE[0])

    def step(self, action: str) -> Step:
        step = super().step(action)
        return replace(step, observation=replace(step.observation, picture=PICTURE))


def test_a_run_keeps_the_pictures_of_its_environment_among_its_episodes(new_run: Any) -> None:
    run = new_run(text=LEARNS, clients={"echo": InlineEnv(DrawnEcho)})
    run.go()
    (file,) = (run.root / EPISODES / MEDIA).iterdir()
    assert file.name == f"{sha256(PICTURE).hexdigest()}.png"
    assert read_picture(run.root / EPISODES, file.stem) == PICTURE
    records = [each for records in episodes_of(run.root).values() for each in records]
    assert {each["dropped_pictures"] for each in records} == {1}
    assert {turn.get("picture") for each in records for turn in each["turns"]} >= {file.stem}


@pytest.mark.parametrize("name", ["", "..", "../../secret", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_a_hash_names_a_picture(tmp_path: Path, name: str) -> None:
    assert read_picture(tmp_path, name) is None


def test_a_file_that_is_not_what_its_name_says_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / MEDIA).mkdir()
    for data, named in ((HOSTILE[0], HOSTILE[0]), (PICTURE, OTHER)):
        (tmp_path / MEDIA / f"{sha256(named).hexdigest()}.png").write_bytes(data)
        assert read_picture(tmp_path, sha256(named).hexdigest()) is None
