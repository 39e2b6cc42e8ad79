from __future__ import annotations

import re
from collections.abc import Callable

import httpx
from agym.envs.errors import EnvFault, FaultKind
from agym.envs.protocol import Env
from agym.envs.serving.metrics import Answers, format_samples
from agym.envs.serving.server import EnvServer

LINE = re.compile(r'[a-z_]+\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\} -?[0-9.e+-]+')


async def test_what_was_done_is_counted(scripted: Callable[[], Env]) -> None:
    app = EnvServer(scripted)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:
        await http.post("/sessions", json={"task": "train-0", "seed": 0, "key": "a"})
        await http.post("/sessions/a/step", json={"action": "hello"})
        await http.post("/sessions", json={"task": "broken", "seed": 0})
        await http.post("/create", json={})
        response = await http.get("/metrics")
    await app.stop()
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    assert all(line.startswith("# ") or LINE.fullmatch(line) for line in lines)
    for line in (
        'agym_env_sessions{env="scripted"} 2',
        'agym_env_episodes_total{env="scripted"} 2',
        'agym_env_steps_total{env="scripted"} 1',
        'agym_env_faults_total{env="scripted",kind="crashed"} 1',
        'agym_env_answers_total{env="scripted",dialect="native",status="201"} 1',
        'agym_env_answers_total{env="scripted",dialect="agentgym",status="200"} 1',
        'agym_env_answer_seconds_count{env="scripted"} 4',
    ):
        assert line in lines


def test_a_histogram_counts_upwards() -> None:
    answers = Answers()
    for seconds in (0.0005, 0.02, 0.02, 500.0):
        answers.count("native", 200, seconds)
    buckets = {each.labels["le"]: each.value for each in answers.samples() if each.suffix == "_bucket"}
    assert (buckets["0.001"], buckets["0.025"], buckets["60.0"], buckets["+Inf"]) == (1, 3, 3, 4)
    assert list(buckets.values()) == sorted(buckets.values())


def test_samples_of_several_environments_stand_together_under_one_name() -> None:
    answers = Answers()
    answers.count_fault(EnvFault("x", kind=FaultKind.BUSY))
    samples = [*answers.samples()]
    text = format_samples((env, sample) for env in ("one", "two") for sample in samples).decode()
    assert text.count("# TYPE agym_env_faults_total counter") == 1
    first = text.index('agym_env_faults_total{env="one",kind="busy"} 1')
    assert text.index('agym_env_faults_total{env="two",kind="busy"} 1') == first + len(
        'agym_env_faults_total{env="one",kind="busy"} 1\n'
    )
