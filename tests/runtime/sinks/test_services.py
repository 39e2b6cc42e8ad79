"""What each sink keeps, read back by the service's own reader; and what it refuses before a run starts."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.catalog import SinkInfo
from agym.dsl.model.plan import Plan
from agym.dsl.model.recipe import Sink as Settings
from agym.runtime.errors import RunError
from agym.runtime.sinks.episode_table import make_table
from agym.runtime.sinks.mlflow import MlflowSink, metric_name
from agym.runtime.sinks.protocol import Opening, remember
from agym.runtime.sinks.registry import SINKS, factory_of, import_library
from agym.runtime.sinks.tensorboard import TensorBoardSink
from agym.runtime.sinks.trackio import TrackioSink
from agym.runtime.sinks.wandb import WandbSink

Make = Callable[..., Any]
FULL, LAST = 1, 4
RECIPE = """\
agym: 1
algorithm: {use: grpo, lr: 0.001}
environments: {craft: {url: "${env:CRAFT}"}}
schedule: [{stage: exploit, turns: 8}]
"""


@pytest.fixture
def opening(plan: Plan, tmp_path: Path) -> Make:
    def made(use: str, environ: dict[str, str] | None = None, **settings: Any) -> Opening:
        chosen = Settings(use=use, **settings)
        return Opening(
            settings=chosen,
            plan=plan,
            folder=tmp_path,
            environ=environ or {},
            wall_clock=lambda: 1000.0,
            recipe=RECIPE,
        )

    return made


# --- tensorboard ---------------------------------------------------------------------------------------------------


@pytest.fixture
def events(tmp_path: Path) -> Callable[[], Iterator[Any]]:
    """By TensorBoard's own reader, of all files in the order they were written."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")

    def read() -> Iterator[Any]:
        for file in sorted((tmp_path / "logs" / "tensorboard").iterdir()):
            yield from loader.EventFileLoader(str(file)).Load()

    return read


def scalars(events: Iterator[Any]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events:
        for value in event.summary.value:
            if value.tensor.float_val:
                found.setdefault(value.tag, []).append((event.step, value.tensor.float_val[0]))
    return found


def test_every_number_of_a_row_is_a_scalar_of_its_step(opening: Make, events: Make, step_row: Make) -> None:
    sink = TensorBoardSink(opening("tensorboard"))
    sink.write(step_row(11))
    sink.write(step_row(12, **{"rollout/success": 0.75, "train/kl": nan}))
    sink.close(failed=False)
    found = scalars(events())
    assert found["rollout/success"] == [(11, 0.5), (12, 0.75)]
    assert isnan(found["train/kl"][1][1])
    assert set(found) == {name for name, value in step_row(1).items() if not isinstance(value, str)} - {"total_step"}


def test_a_note_is_text_at_the_step_it_was_said(opening: Make, events: Make, step_row: Make) -> None:
    sink = TensorBoardSink(opening("tensorboard"))
    sink.write(step_row(11))
    sink.note("rolled back to the weights of step 10")
    sink.close(failed=False)
    said = [(e.step, v.tensor.string_val[0]) for e in events() for v in e.summary.value if v.tag == "note"]
    assert said == [(11, b"rolled back to the weights of step 10")]


def test_steps_that_a_resumed_run_takes_again_are_there_once(opening: Make, step_row: Make, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")
    for steps in ((11, 12, 13), (12, 13, 14)):
        sink = TensorBoardSink(opening("tensorboard"))
        for step in steps:
            sink.write(step_row(step))
        sink.close(failed=False)
        # the files are told apart by the second and the process they were begun in
        for file in (tmp_path / "logs" / "tensorboard").glob("events*.0"):
            file.rename(file.with_name(f"events.out.tfevents.{steps[0]:010}.part"))
    read = accumulator.EventAccumulator(str(tmp_path / "logs" / "tensorboard"))
    read.Reload()
    assert [event.step for event in read.Tensors("rollout/success")] == [11, 12, 13, 14]


def test_steps_that_a_restarted_learner_takes_again_are_there_once(
    opening: Make, step_row: Make, tmp_path: Path
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")
    sink = TensorBoardSink(opening("tensorboard"))
    for step in (11, 12, 13, 12, 13, 14):
        sink.write(step_row(step))
    sink.close(failed=False)
    read = accumulator.EventAccumulator(str(tmp_path / "logs" / "tensorboard"))
    read.Reload()
    assert [event.step for event in read.Tensors("rollout/success")] == [11, 12, 13, 14]


def test_the_recipe_and_the_episodes_are_text(opening: Make, events: Make, played: Make) -> None:
    sink = TensorBoardSink(opening("tensorboard"))
    sink.table(make_table("eval", 20, [played(("get log", "Got log"))], str))
    sink.close(failed=False)
    texts = {v.tag: (e.step, v.tensor.string_val[0].decode()) for e in events() for v in e.summary.value}
    assert texts["recipe"][0] == 0
    assert '    environments: {craft: {url: "${env:CRAFT}"}}' in texts["recipe"][1].splitlines()
    step, text = texts["episodes/eval"]
    assert step == 20
    assert "### textcraft craft-torch: ending done, success True, score 1.0, turns 1" in text
    assert "    [assistant] get log\n    [environment] Got log" in text


# --- mlflow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("train/kl", "train/kl"),
        ("eval/craft/pass@8", "eval/craft.pass_at_8"),
        ("eval/craft/success/easy", "eval/craft.success.easy"),
        ("eval/größe#1", "eval/gr__e_1"),
    ],
)
def test_a_metric_has_a_name_that_mlflow_takes(name: str, there: str) -> None:
    assert metric_name(name) == there


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::PendingDeprecationWarning")
def test_mlflow_keeps_rows_notes_and_the_ending_in_a_folder(
    opening: Make, step_row: Make, eval_row: Make, played: Make, tmp_path: Path
) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    for failed, steps in ((True, (11, 12)), (False, (13,))):
        sink = MlflowSink(opening("mlflow", offline=True))
        for step in steps:
            sink.write(step_row(step, **{"train/kl": nan}))
        sink.write(eval_row(steps[-1], **{"eval/textcraft/pass@4": 0.7}))
        sink.note("a guard spoke")
        sink.table(make_table("eval", steps[-1], [played(("get log", "Got log"))], str))
        sink.close(failed=failed)
    client = tracking.MlflowClient(tracking_uri=(tmp_path / "logs" / "mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("craft").experiment_id])
    history = client.get_metric_history(run.info.run_id, "rollout/success")
    assert [(point.step, point.value, point.timestamp) for point in history] == [
        (s, 0.5, 1_000_000) for s in (11, 12, 13)
    ]
    assert "train/kl" not in run.data.metrics
    assert run.data.metrics["eval/textcraft.pass_at_4"] == 0.7
    assert run.data.tags["stage"] == "exploit"
    assert run.data.tags["note.0001"] == "a guard spoke"
    assert run.data.params == {
        "agym": "1",
        "algorithm.use": "grpo",
        "algorithm.lr": "0.001",
        "environments.craft.url": "${env:CRAFT}",
        "schedule.exploit.stage": "exploit",
        "schedule.exploit.turns": "8",
    }
    kept = {file.name: file.read_text() for file in tmp_path.rglob("step-*.md")}
    assert set(kept) == {"step-000012-eval.md", "step-000013-eval.md"}
    assert "[environment] Got log" in kept["step-000013-eval.md"]
    assert run.info.status == "FINISHED"


def test_an_offline_mlflow_takes_no_server(opening: Make) -> None:
    with pytest.raises(RunError, match="'mlflow' is offline and has the address of a server"):
        MlflowSink(opening("mlflow", offline=True, uri="https://user:pass@example.org"))


# --- wandb ---------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_wandb_keeps_rows_offline_and_no_key(opening: Make, step_row: Make, played: Make, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    sink = WandbSink(opening("wandb", {"WANDB_API_KEY": "k" * 40}, offline=True, options={"group": "ablation"}))
    sink.write(step_row(11))
    sink.write(step_row(12, **{"rollout/success": 0.75}))
    # a restarted learner takes it again
    sink.write(step_row(11, **{"rollout/success": 0.25}))
    sink.note("a guard spoke")
    sink.table(make_table("eval", 11, [played(("get log", "Got log"))], str))
    sink.close(failed=False)
    records = list(wandb_records(tmp_path / "logs" / "wandb"))
    run = next(record.run for record in records if record.HasField("run"))
    assert (run.project, run.display_name, run.run_group, list(run.tags)) == ("craft", "craft", "ablation", ["tiny"])
    rows = [items(record.history.item) for record in records if record.HasField("history")]
    assert [row["_step"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["total_step"] for row in rows] == ["11", "12", "11", "11", "11"]
    assert [row["rollout/success"] for row in rows[:3]] == ["0.5", "0.75", "0.25"]
    assert rows[3]["note"] == '"a guard spoke"'
    assert rows[4]["episodes/eval/_type"] == '"table-file"'
    axes = {record.metric.glob_name or record.metric.name: record.metric.step_metric for record in records}
    assert axes["*"] == "total_step"
    config = items(run.config.update)
    assert config["algorithm"] == '{"use":"grpo","lr":0.001}'
    assert config["environments"] == '{"craft":{"url":"${env:CRAFT}"}}'
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"k" * 40 in file.read_bytes()]


def wandb_records(folder: Path) -> Iterator[Any]:
    """Framed as a LevelDB log: blocks of 32 KiB, fragments with a header of 7 bytes (sum, length, kind)."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.rglob("run-*.wandb")
    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        whole, at = whole + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def items(found: Any) -> dict[str, str]:
    return {item.key or "/".join(item.nested_key): item.value_json for item in found}


def test_wandb_online_needs_a_key_from_the_environment(opening: Make) -> None:
    with pytest.raises(RunError, match="a key in WANDB_API_KEY; set it, or write 'offline: true'"):
        WandbSink(opening("wandb"))


# --- trackio -------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_trackio_goes_on_in_the_same_run_of_its_folder(
    opening: Make, step_row: Make, played: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    # read when it is imported, which only this test does
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip("trackio")
    for failed, steps in ((True, (11, 12)), (False, (13,))):
        sink = TrackioSink(opening("trackio", options={"group": "ablation"}))
        for step in steps:
            sink.write(step_row(step, **{"train/kl": nan}))
        sink.note("a guard spoke")
        sink.table(make_table("eval", steps[-1], [played(("get log", "Got log"))], str))
        sink.close(failed=failed)
    assert "initialized" not in capsys.readouterr().out
    (run,) = trackio.Api().runs("craft")
    assert run.config["environments"] == {"craft": {"url": "${env:CRAFT}"}}
    assert (run.config["tags"], run.config["_Group"]) == (["tiny"], "ablation")
    logs = trackio.sqlite_storage.SQLiteStorage.get_logs("craft", run.name, run_id=run.id)
    rows = [row for row in logs if "rollout/success" in row]
    assert [(row["step"], row["stage_step"], row["rollout/success"]) for row in rows] == [
        (step, step - 10, 0.5) for step in (11, 12, 13)
    ]
    assert all(isnan(row["train/kl"]) for row in rows)
    assert [row["note"] for row in logs if "note" in row] == ["a guard spoke"] * 2
    assert [row["ended"] for row in logs if "ended" in row] == ["failed", "finished"]
    (table,) = (row["episodes/eval"]["_value"] for row in logs if "episodes/eval" in row and row["step"] == 13)
    assert "[environment] Got log" in table[0]["text"]


def test_a_trackio_server_needs_a_whole_address_and_a_key_from_the_environment(opening: Make) -> None:
    with pytest.raises(RunError, match="'trackio' takes the whole address of a server"):
        TrackioSink(opening("trackio", uri="localhost:7860"))
    with pytest.raises(RunError, match="the server's key in TRACKIO_WRITE_TOKEN; set it, or leave out 'uri'"):
        TrackioSink(opening("trackio", uri="http://localhost:7860"))


# --- what all have in common ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SINKS))
def test_an_option_that_a_sink_does_not_have_is_refused(opening: Make, name: str) -> None:
    with pytest.raises(RunError, match=f"'{name}' has no option 'api_key': expected "):
        factory_of(name)(opening(name, offline=True, options={"api_key": "x"}))


def test_a_missing_package_is_told_with_the_line_that_installs_it() -> None:
    with pytest.raises(RunError, match=r"'wandb' needs a package .*no_such.*: pip install 'agym-dsl\[wandb\]'"):
        import_library("no_such_package", "wandb")


def test_no_library_is_imported_before_a_sink_is_opened() -> None:
    code = (
        "import sys, agym.runtime.sinks.fanout\n"
        "names = ('wandb', 'mlflow', 'tensorboard', 'trackio', 'rich', 'torch')\n"
        "print([name for name in names if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_resumed_run_is_known_by_the_name_it_had(opening: Make) -> None:
    assert remember(opening("wandb"), "wandb-run", lambda: "first") == "first"
    assert remember(opening("wandb"), "wandb-run", lambda: "second") == "first"


@pytest.mark.parametrize("row", SINKS.values(), ids=list(SINKS))
def test_extra_settings_options_and_variables_of_the_table_are_those_of_the_package_and_the_guide(
    row: SinkInfo, root: Path
) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {re.split("[>=]", each)[0] for each in extras[row.extra]} & set(row.packages)
    (line,) = (
        line
        for line in (root / "docs" / "logging.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{row.name}` |")
    )
    named = [word for word in (*(row.settings or ()), *row.options) if word != "options"]
    assert all(f"`{word}`" in line for word in named)
    assert f"agym-dsl[{row.extra}]" in line
    assert all(f"`{variable}`" in (root / "docs" / "logging.md").read_text() for variable in row.variables)


# --- plugins -------------------------------------------------------------------------------------------------------


class Point:
    """An entry point of an installed plugin."""

    def __init__(self, name: str, found: Any) -> None:
        self.name, self.value, self._found = name, "paper:open", found

    def load(self) -> Any:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def test_a_plugin_brings_a_sink() -> None:
    assert factory_of("paper", lambda: [Point("paper", WandbSink)]) is WandbSink  # type: ignore[list-item]


def test_a_plugin_takes_over_no_name_of_ours() -> None:
    assert factory_of("wandb", lambda: [Point("wandb", print)]) is WandbSink  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "no sink is called 'paper' on this machine"),
        ([Point("paper", ValueError("broken"))], r"paper:open, cannot be loaded: ValueError\('broken'\)"),
        ([Point("paper", 7)], "paper:open, is not a function that opens a sink"),
    ],
    ids=["absent", "broken", "no function"],
)
def test_a_plugin_that_cannot_be_used_is_reported(points: list[Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        factory_of("paper", lambda: points)
