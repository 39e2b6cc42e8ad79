from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from random import Random
from typing import Any

import numpy as np
import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.clients.seated import seat_by_chance, seat_by_record
from agym.envs.errors import BadOption, EnvFault, EpisodeOver, FaultKind, UnknownTask
from agym.envs.protocol import Json, Seat, SeatModel, Status
from agym.envs.textarena import TextArena, create
from agym.envs.textarena.positions import ConnectFour, Nim, TicTacToe, best_moves

# old escapes in the games' sources, said when they are compiled
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
]

TICTACTOE: Mapping[str, Json] = {"game": "TicTacToe-v0"}
GAMES = (
    *(
        "TicTacToe-v0",
        "Nim-v0",
        "ConnectFour-v0",
        "KuhnPoker-v0",
        "Othello-v0-tiny",
        "PigDice-v0-short",
        "LiarsDice-v0",
    ),
    *("2048-v0-ultra-easy", "Bandit-v0", "Secretary-v0", "Sokoban-v0", "FrozenLake-v0-random", "ThreePlayerGOPS-v0"),
)


def told(env: TextArena, task: str, moves: int = 12) -> Iterator[tuple[str, float]]:
    """What an episode of random moves tells, turn by turn."""
    rng = Random(task)
    yield env.reset(task, 0).text, 0.0
    for _ in range(moves):
        step = env.step(env.noise_action(rng) or "[0]")
        yield step.observation.text, step.reward
        if step.ended:
            return


# --- episodes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_the_same_task_and_actions_give_the_same_episode_also_interleaved(game: str) -> None:
    one, other = create({"game": game}), create({"game": game})
    alone = {task: list(told(create({"game": game}), task)) for task in one.tasks("train")[:2]}
    first, second = alone
    pairs = [(told(one, first), alone[first]), (told(other, second), alone[second])]
    for at in range(max(map(len, alone.values()))):
        for playing, expected in pairs:
            if at < len(expected):
                assert next(playing) == expected[at]


def test_the_process_keeps_its_own_chance() -> None:
    before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    for game in ("Bandit-v0", "Sokoban-v0", "LiarsDice-v0"):
        assert list(told(create({"game": game}), "seat0-3"))
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numpy_before  # type: ignore[index,union-attr]


@pytest.mark.slow
def test_episodes_are_the_same_in_another_process() -> None:
    code = (
        "from agym.envs.textarena import create\n"
        "for game in ('ThreePlayerGOPS-v0', 'Sokoban-v0', 'KuhnPoker-v0'):\n"
        "    print(repr(create({'game': game}).reset('seat0-5', 0).text))\n"
    )
    ours = [repr(create({"game": game}).reset("seat0-5", 0).text) for game in GAMES if game in code]
    for hash_seed in ("1", "2"):
        theirs = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": hash_seed},
        )  # fmt: skip
        assert sorted(theirs.stdout.splitlines()) == sorted(ours)


def test_both_seats_are_played_by_task() -> None:
    env = create({**TICTACTOE, "seeds": 2})
    assert env.tasks("train") == ("seat0-0", "seat1-0", "seat0-1", "seat1-1")
    assert env.tasks("test")[0] == "seat0-1000000"
    assert "You are Player 0" in env.reset("seat0-0", 0).text
    assert "You are Player 1" in (second := env.reset("seat1-0", 0).text)
    assert "Player 0 placed their symbol" in second
    assert env.difficulty("seat1-0") == "seat1"


@pytest.mark.parametrize("task", ["", "seat2-0", "seat0", "seat0-x", "seed-1"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(UnknownTask, match="expected one such as seat0-17"):
        create(TICTACTOE).reset(task, 0)


def test_a_wrong_move_is_told_and_the_next_one_loses() -> None:
    env = create(TICTACTOE)
    env.reset("seat0-0", 0)
    wrong = env.step("somewhere")
    assert (wrong.status, wrong.ended, wrong.reward) == (Status.INVALID, False, 0.0)
    assert "invalid move" in wrong.observation.text
    lost = env.step("elsewhere")
    assert (lost.status, lost.terminated, lost.reward, lost.info["outcome"]) == (Status.INVALID, True, 0.0, -1.0)
    with pytest.raises(EpisodeOver):
        env.step("[0]")


def test_a_right_move_after_a_wrong_one_is_taken() -> None:
    env = create(TICTACTOE)
    env.reset("seat0-0", 0)
    env.step("somewhere")
    assert env.step("[4]").status is Status.OK


def test_only_the_board_is_shown_where_that_was_asked_for() -> None:
    text = create({**TICTACTOE, "show": "board"}).reset("seat1-0", 0).text
    assert text.startswith("Current Board:")
    assert text.count("Current Board:") == 1


def test_an_episode_without_end_is_cut_off() -> None:
    env = create({"game": "FifteenPuzzle-v0", "max_steps": 2})
    env.reset("seat0-0", 0)
    rng = Random(0)
    steps = [env.step(env.noise_action(rng) or "") for _ in range(2)]
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, True)]


# --- opponents and the expert --------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["TicTacToe-v0", "Nim-v0", "ConnectFour-v0"])
def test_the_expert_wins_against_chance(game: str) -> None:
    env = create({"game": game})
    shown = {task: moves for task in env.tasks("test")[:6] if (moves := env.expert(task, 0)) is not None}
    assert len(shown) >= 4
    for task, moves in shown.items():
        env.reset(task, 0)
        steps = [env.step(move) for move in moves]
        assert (steps[-1].terminated, steps[-1].reward) == (True, 1.0)


def test_nobody_wins_at_tictactoe_against_lookahead() -> None:
    env = create({**TICTACTOE, "opponent": "lookahead"})
    for task in env.tasks("train")[:10]:
        env.reset(task, 0)
        rng = Random(task)
        while not (step := env.step(env.noise_action(rng) or "")).ended:
            pass
        assert step.reward <= 0.5
        assert env.expert(task, 0) is None


def test_the_task_chooses_among_several_opponents() -> None:
    env = create({**TICTACTOE, "opponent": ["random", "lookahead"]})
    assert env.expert("seat0-1", 0) is None
    assert any(env.expert(f"seat0-{number}", 0) for number in range(0, 8, 2))


@pytest.mark.parametrize(
    ("position", "best"),
    [
        (TicTacToe("++ -- -  "), {"[2]"}),
        (TicTacToe("--  +    "), {"[2]"}),
        (Nim((1, 1, 1)), {"[0 1]", "[1 1]", "[2 1]"}),
        (Nim((3, 4, 5)), {"[0 2]"}),
        (ConnectFour(("+++", "-", "-", "", "", "", ""), 6), {"[col 0]"}),
        (ConnectFour(("---", "+", "+", "", "", "", ""), 6), {"[col 0]"}),
        (ConnectFour(("+", "+", "+", "", "-", "-", "-"), 6), {"[col 3]"}),
    ],
)
def test_a_search_finds_the_best_moves(position: Any, best: set[str]) -> None:
    assert set(best_moves(position)) == best


@contextmanager
def endpoint(answers: Sequence[str | None], asked: list[Any], finish: str = "stop", status: int = 200) -> Iterator[str]:
    """A chat endpoint that gives these answers, the last of them again and again."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            content = answers[min(len(asked), len(answers)) - 1]
            message = {"role": "assistant", "content": content}
            body = json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *about: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_model_at_an_endpoint_plays_the_other_seat() -> None:
    asked: list[Any] = []
    with endpoint(["I take [4]", "[8]"], asked) as url:
        env = create({**TICTACTOE, "opponent": {"url": url, "model": "step-40"}})
        assert "cell 4" in env.reset("seat1-0", 0).text
        assert "cell 8" in env.step("[0]").observation.text
    assert [(each["model"], each["temperature"]) for each in asked] == [("step-40", 0)] * 2
    assert "You are Player 0" in asked[1]["messages"][0]["content"]
    assert "cell 0" in asked[1]["messages"][0]["content"]


# --- models of the run -------------------------------------------------------------------------------------------


SELF: Mapping[str, Json] = {**TICTACTOE, "opponent": "policy"}
FIRST = Seat(name="player 0", model=SeatModel.POLICY)


def test_a_model_of_the_run_is_shown_its_own_seat_and_moves_by_the_next_action() -> None:
    env = create(SELF)
    assert env.spec.models == (SeatModel.POLICY,)
    theirs = env.reset("seat1-0", 0)
    assert theirs.seat == FIRST
    assert "You are Player 0" in theirs.text
    assert theirs.valid_actions is not None
    ours = env.step("[4]").observation
    assert ours.seat is None
    assert "You are Player 1" in ours.text
    assert "Player 0: [4]" in ours.text
    again = env.step("[0]")
    assert (again.observation.seat, again.status) == (FIRST, Status.OK)
    assert "Player 1: [0]" in again.observation.text
    assert "You are Player" not in again.observation.text


def test_a_wrong_move_of_a_model_is_told_to_it_and_is_no_mistake_of_the_agents() -> None:
    env = create(SELF)
    env.reset("seat1-0", 0)
    wrong = env.step("")
    assert (wrong.status, wrong.observation.seat) == (Status.OK, FIRST)
    assert "invalid move" in wrong.observation.text
    won = env.step("nowhere")
    assert (won.terminated, won.reward, won.observation.seat) == (True, 1.0, None)


def test_the_last_action_is_answered_before_the_episode_is_cut_off() -> None:
    env = create({**SELF, "max_steps": 1})
    env.reset("seat0-0", 0)
    last = env.step("[0]")
    assert (last.truncated, last.observation.seat is None) == (False, False)
    assert env.step("[1]").truncated


def test_who_plays_is_the_tasks_difficulty_where_there_are_several() -> None:
    env = create(
        {**TICTACTOE, "opponent": ["random", "policy", "earlier", {"url": "http://127.0.0.1:9/v1", "model": "m"}]}
    )
    assert [env.difficulty(f"seat1-{number}") for number in range(5)] == ["random", "policy", "earlier", "m", "random"]
    assert env.spec.models == (SeatModel.POLICY, SeatModel.EARLIER)
    earlier = env.reset("seat1-2", 0).seat
    assert earlier is not None
    assert earlier.model is SeatModel.EARLIER


def test_an_expert_knows_no_way_to_win_against_a_model_of_the_run() -> None:
    env = create({**TICTACTOE, "opponent": ["policy", "random"]})
    assert env.expert("seat0-0", 0) is None
    assert any(env.expert(f"seat0-{number}", 0) for number in range(1, 9, 2))


def test_whoever_plays_by_hand_meets_chance_in_the_models_seats_and_a_record_repeats_it() -> None:
    async def go() -> None:
        client = InlineEnv(lambda: create(SELF))
        spec = await client.spec()
        try:
            by_hand = await seat_by_chance(await client.open("seat1-0", 0), spec)
            session = await client.open("seat1-0", 0)
            record = await seat_by_record(session, spec, {"player 0": ["[4]", "[8]"]})
            assert by_hand.first.seat is None
            assert "Player 0: [4]" in record.first.text
            assert "Player 0: [8]" in (await record.step("[0]")).observation.text
            while not (step := await by_hand.step(await by_hand.noise_action(1) or "")).ended:
                assert step.observation.seat is None
        finally:
            await client.close()

    asyncio.run(go())


def test_an_opponent_that_does_not_answer_is_a_fault_and_no_win() -> None:
    with endpoint(["[4]"], []) as url:
        pass
    env = create({**TICTACTOE, "opponent": {"url": url, "model": "gone"}})
    with pytest.raises(EnvFault, match="the opponent at"):
        env.reset("seat1-0", 0)


@pytest.mark.parametrize(("key", "error"), [("sk-secret\n", EnvFault), ("sk-\nsecret", BadOption)])
def test_no_message_about_an_opponent_holds_its_key(
    monkeypatch: pytest.MonkeyPatch, key: str, error: type[Exception]
) -> None:
    monkeypatch.setenv("OPPONENT_KEY", key)
    with (
        endpoint([""], [], status=401) as url,
        pytest.raises(error, match=r"/v1: status 401$|variable OPPONENT_KEY is no key") as caught,
    ):
        create({**TICTACTOE, "opponent": {"url": url, "model": "m", "key_variable": "OPPONENT_KEY"}}).reset(
            "seat1-0", 0
        )
    assert "sk-" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    ("content", "finish", "says"),
    [
        (None, "length", "did not end its answer within 256 tokens"),
        ("Cell 4 would be", "length", "did not end its answer"),
        (None, "stop", "gave no answer"),
        (" ", "stop", "gave no answer"),
    ],
)
def test_an_answer_without_text_or_end_is_a_fault_and_no_wrong_move(
    content: str | None, finish: str, says: str
) -> None:
    with endpoint([content], [], finish) as url:
        env = create({**TICTACTOE, "opponent": {"url": url, "model": "thinker"}})
        with pytest.raises(EnvFault, match=says) as caught:
            env.reset("seat1-0", 0)
    assert caught.value.kind is FaultKind.GARBAGE


# --- what cannot be played -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs the option 'game'"),
        ({"game": "TicTacTo-v0"}, "did you mean 'TicTacToe-v0'"),
        ({"game": "Debate-v0"}, "asks models at openrouter.ai"),
        ({"game": "Countdown-v0"}, "fails on a wrong move"),
        ({"game": "UsedCarNegotiation-v0"}, "cannot begin"),
        ({"game": "UsedCar-v0-balanced"}, "No module named"),
        ({"game": "Tak-v0"}, "moves of 'Tak-v0' cannot be listed"),
        ({"game": "TicTacToe-v0", "players": 3}, "with 3 players"),
        ({"game": "TicTacToe-v0", "kwargs": {"size": 4}}, "cannot begin"),
        ({"game": "TicTacToe-v0", "opponent": "nobody"}, "one of random, lookahead, policy, earlier"),
        ({"game": "TicTacToe-v0", "opponent": "strong"}, "opponent"),
        ({"game": "TicTacToe-v0", "opponent": {"url": "here"}}, "opponent"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(options: Mapping[str, Json], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        create(options)


@pytest.mark.parametrize("opponent", ["policy", {"url": "http://127.0.0.1:9/v1", "model": "any"}])
def test_games_whose_moves_cannot_be_listed_are_played_against_a_model(opponent: Json) -> None:
    env = create({"game": "Tak-v0", "opponent": opponent})
    assert "Tak" in env.reset("seat0-0", 0).text


def test_defaults_are_those_that_the_data_file_names() -> None:
    data = json.loads(files("agym.envs.textarena").joinpath("env.json").read_text("utf-8"))
    env = create(TICTACTOE)
    for name, schema in data["options"].items():
        if "default" in schema:
            default = getattr(env._options, name)
            assert (list(default) if isinstance(default, tuple) else default) == schema["default"]


def test_a_key_that_is_not_set_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    opponent = {"url": "http://127.0.0.1:9/v1", "model": "any", "key_variable": "NO_SUCH_KEY"}
    with pytest.raises(BadOption, match="option 'opponent': the environment variable NO_SUCH_KEY is not set"):
        create({**TICTACTOE, "opponent": ["random", opponent]})
    monkeypatch.setenv("NO_SUCH_KEY", "secret")
    assert "secret" not in repr(vars(create({**TICTACTOE, "opponent": opponent})))
