"""Everyone is notified, in order, and nothing can hold up or end a run: not a sink, not the console."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.model.plan import Plan
from agym.runtime.errors import RunError
from agym.runtime.reporting import EventKind, MetricsRow
from agym.runtime.sinks.console.console import PlainConsole, Terminal
from agym.runtime.sinks.fanout import Fanout, open_fanout, redact
from agym.runtime.sinks.protocol import Factory, Opening
from agym.runtime.storage.events import EVENTS, EventLog, count_events, describe_counts

Make = Callable[..., Any]


class Paper:
    """Keeps what it is told; fails at the rows it was told to fail at."""

    def __init__(self, *fails_at: int) -> None:
        self.told: list[Any] = []
        self._fails_at = fails_at

    def write(self, row: MetricsRow) -> None:
        if row["total_step"] in self._fails_at:
            raise ConnectionError(f"no route\nto https://me:pw@host, key {SECRET}")
        self.told.append(row["total_step"])

    def note(self, text: str) -> None:
        self.told.append(text)

    def close(self, *, failed: bool) -> None:
        self.told.append("failed" if failed else "closed")


class Stuck(Paper):
    """Does not come back from its first row until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def write(self, row: MetricsRow) -> None:
        self.let_go.wait(20)
        super().write(row)


class Gone(PlainConsole):
    """A console whose reader went away."""

    def row(self, row: MetricsRow) -> None:
        raise BrokenPipeError("broken pipe")


SECRET = "s3cr3t-of-forty-letters"
ENVIRON = {"WANDB_API_KEY": SECRET, "HOME": "/home/me", "A_TOKEN": "a"}
OFF = "the run goes on without it, and metrics.jsonl has every row"


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def tell(plan: Plan, out: io.StringIO) -> Callable[..., Fanout]:
    def made(patience_s: float = 10.0, waiting: int = 1000, **sinks: Any) -> Fanout:
        return Fanout(PlainConsole(out, plan), sinks, ENVIRON, queue_size=waiting, close_timeout_s=patience_s)

    return made


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    sink = Stuck()
    yield sink
    sink.let_go.set()


def notes(out: io.StringIO) -> list[str]:
    return [line.removeprefix("note: ") for line in out.getvalue().splitlines() if line.startswith("note: ")]


def test_console_and_sinks_hear_the_same_in_the_same_order(
    tell: Make, out: io.StringIO, step_row: Make, played: Make
) -> None:
    one, two = Paper(), Paper()
    fanout = tell(one=one, two=two)
    fanout.phase("rollout")
    fanout.episode(played(("go", "there")))
    fanout.row(step_row(11))
    fanout.note("a guard spoke")
    fanout.row(step_row(12))
    fanout.close(["finished"])
    assert one.told == two.told == [11, "a guard spoke", 12, "closed"]
    assert [line.split("  ")[0] for line in out.getvalue().splitlines()] == [
        "step 11",
        "note: a guard spoke",
        "step 12",
        "finished",
    ]


def test_a_sink_is_told_that_the_run_failed(tell: Make) -> None:
    paper = Paper()
    tell(paper=paper).close(failed=True)
    assert paper.told == ["failed"]


def test_a_failing_sink_is_switched_off_with_one_note_and_the_others_go_on(
    tell: Make, out: io.StringIO, step_row: Make
) -> None:
    bad, good = Paper(12, 13), Paper()
    fanout = tell(bad=bad, good=good)
    for step in (11, 12, 13, 14):
        fanout.row(step_row(step))
    fanout.close()
    reason = "failed (ConnectionError: no route\\nto https://***@host, key ***)"
    assert notes(out) == [f"the sink 'bad' {reason}; {OFF}"]
    assert bad.told == [11, "closed"]
    assert [told for told in good.told if isinstance(told, int)] == [11, 12, 13, 14]


def test_a_sink_that_hangs_holds_up_no_row_and_not_the_end(
    tell: Make, out: io.StringIO, step_row: Make, stuck: Stuck
) -> None:
    good = Paper()
    fanout = tell(patience_s=0.05, stuck=stuck, good=good)
    for step in range(11, 31):
        fanout.row(step_row(step))
    fanout.close()
    assert good.told[:20] == list(range(11, 31))
    assert notes(out) == [f"the sink 'stuck' did not finish within 0.05s of the end; {OFF}"]


def test_a_sink_that_falls_far_behind_is_switched_off(
    tell: Make, out: io.StringIO, step_row: Make, stuck: Stuck
) -> None:
    fanout = tell(patience_s=0.05, waiting=5, stuck=stuck)
    for step in range(11, 31):
        fanout.row(step_row(step))
    fanout.close()
    assert notes(out) == [f"the sink 'stuck' is 5 rows behind; {OFF}"]


def test_a_console_that_is_gone_ends_nothing(plan: Plan, step_row: Make) -> None:
    paper = Paper()
    fanout = Fanout(Gone(io.StringIO(), plan), {"paper": paper}, {})
    fanout.row(step_row(11))
    fanout.row(step_row(12))
    fanout.close(["finished"])
    assert paper.told == [11, "the console is gone (broken pipe)", 12, "closed"]


# --- secrets -------------------------------------------------------------------------------------------------------


def test_secrets_are_in_no_note_and_not_in_the_last_words(tell: Make, out: io.StringIO) -> None:
    paper = Paper()
    fanout = tell(paper=paper)
    fanout.note(f"could not send {SECRET}")
    fanout.close([f"stopped: {SECRET}"])
    assert paper.told == ["could not send ***", "closed"]
    assert out.getvalue() == "note: could not send ***\nstopped: ***\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"key={SECRET}!", "key=***!"),
        ("http://user:pass@host/a and ftp://x@h", "http://***@host/a and ftp://***@h"),
        ("write to me@example.org at /home/me", "write to me@example.org at /home/me"),
        ("a short value named a token", "a short value named a token"),
    ],
)
def test_values_named_like_secrets_and_users_in_addresses_are_taken_out(text: str, told: str) -> None:
    assert redact(text, ENVIRON) == told


@pytest.mark.parametrize("before", range(240, 300, 7))
def test_a_secret_is_taken_out_before_a_long_reason_is_cut(
    tell: Make, out: io.StringIO, step_row: Make, before: int
) -> None:
    class Wordy(Paper):
        def write(self, row: MetricsRow) -> None:
            raise ValueError("x" * before + SECRET + "y" * 1000)

    fanout = tell(wordy=Wordy())
    fanout.row(step_row(11))
    fanout.close()
    assert SECRET[:3] not in out.getvalue()
    assert len(notes(out)[0]) < 500


def test_a_secret_that_holds_another_leaves_no_rest() -> None:
    assert redact("abcdefghij", {"A_KEY": "abcdef", "B_KEY": "abcdefghij"}) == "***"


# --- opening -------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_with(logging_to: Make, out: io.StringIO, tmp_path: Path) -> Make:
    def made(**factories: Factory) -> Fanout:
        return open_fanout(
            logging_to(*factories),
            tmp_path,
            Terminal(out=out, live=False),
            ENVIRON,
            clock=lambda: 0.0,
            wall_clock=lambda: 0.0,
            find=factories.__getitem__,
        )

    return made


def test_each_sink_of_the_recipe_is_opened_for_its_run(open_with: Make, tmp_path: Path) -> None:
    opened: list[Opening] = []
    paper = Paper()

    def factory(opening: Opening) -> Paper:
        opened.append(opening)
        return paper

    open_with(paper=factory).close()
    assert [(each.settings.use, each.folder, each.plan.name) for each in opened] == [("paper", tmp_path, "craft")]
    assert paper.told == ["closed"]


def test_a_service_that_cannot_be_had_is_left_out_with_a_note(open_with: Make, out: io.StringIO) -> None:
    def unreachable(opening: Opening) -> Paper:
        raise ConnectionError(f"refused {SECRET}")

    paper = Paper()
    open_with(far=unreachable, paper=lambda opening: paper).close()
    said = "the sink 'far' could not be opened (ConnectionError: refused ***); metrics.jsonl has every row"
    assert notes(out) == [said]
    assert paper.told == [said, "closed"]


def test_what_a_person_must_fix_stops_the_run_before_it_starts(open_with: Make, out: io.StringIO) -> None:
    def unset(opening: Opening) -> Paper:
        raise RunError("logging: wandb needs a key")

    paper = Paper()
    with pytest.raises(RunError, match="wandb needs a key"):
        open_with(paper=lambda opening: paper, wandb=unset)
    assert paper.told == ["failed"]
    assert out.getvalue() == ""


# --- events.jsonl -----------------------------------------------------------------------------------------------------


def test_events_are_kept_redacted_in_whole_lines_over_resumes(plan: Plan, tmp_path: Path, step_row: Make) -> None:
    out, paper = io.StringIO(), Paper()
    (tmp_path / EVENTS).write_text('{"kind": "resume"}\n{"kind": "no')
    fanout = Fanout(PlainConsole(out, plan), {"paper": paper}, ENVIRON, events=EventLog(tmp_path, lambda: 7.0))
    fanout.row(step_row(11))
    fanout.note(f"the key is {SECRET}")
    fanout.event(EventKind.ROLL_BACK, "rolled back", total_step=12, to_step=8)
    fanout.event(EventKind.END, "", outcome="finished")
    fanout.close()
    fanout.note("too late")
    lines = [json.loads(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert lines == [
        {"kind": "resume"},
        {"time": 7.0, "total_step": 11, "kind": "note", "text": "the key is ***"},
        {"time": 7.0, "total_step": 12, "kind": "roll_back", "text": "rolled back", "to_step": 8},
        {"time": 7.0, "total_step": 12, "kind": "end", "text": "", "outcome": "finished"},
    ]
    assert notes(out) == ["the key is ***", "rolled back", "too late"]
    assert paper.told == [11, "the key is ***", "rolled back", "closed"]


def test_an_event_that_finds_no_file_any_more_ends_nothing(tmp_path: Path) -> None:
    log = EventLog(tmp_path, lambda: 0.0)
    (tmp_path / EVENTS).unlink()
    log.add(EventKind.NOTE, "gone")
    log.close()
    assert not (tmp_path / EVENTS).exists()
    assert count_events(tmp_path) == {}


def test_what_happened_to_workers_is_counted_and_damage_is_passed_over(tmp_path: Path) -> None:
    log = EventLog(tmp_path, lambda: 0.0)
    for count in (1, 2):
        log.add(EventKind.WORKER_REPLACED, "", role="rollout", count=count)
        log.add(EventKind.LEARNER_RESTARTED, "", discarded_steps=count)
    log.close()
    with (tmp_path / EVENTS).open("ab") as file:
        file.write(b'null\n{"kind": "worker_replaced"}\n\xff\n[1]\n')
    counts = count_events(tmp_path)
    assert counts == {
        "workers/replaced_rollout": 3,
        "workers/learner_restarts": 2,
        "workers/discarded_steps": 3,
    }
    assert describe_counts(counts) == "discarded steps: 3, learner restarts: 2, replaced rollout: 3"
