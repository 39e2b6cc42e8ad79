"""What a person sees: exact lines where it is not a terminal, exact frames where it is one."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.model.plan import Plan
from agym.runtime.rollout.episode import Ending
from agym.runtime.sinks.console.console import LiveConsole, PlainConsole, Terminal, console_on, wants_live
from rich.console import Console as Screen

Make = Callable[..., Any]


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Tty(io.TextIOWrapper):
    """A terminal that keeps what it is sent."""

    def __init__(self, encoding: str = "utf-8", *, tty: bool = True) -> None:
        self.sent = io.BytesIO()
        self.tty = tty
        super().__init__(self.sent, encoding=encoding)

    def isatty(self) -> bool:
        return self.tty

    def text(self) -> str:
        self.flush()
        return self.sent.getvalue().decode(self.encoding)


# --- plain lines ---------------------------------------------------------------------------------------------------


@pytest.fixture
def paper() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def plain(paper: io.StringIO, plan: Plan) -> PlainConsole:
    return PlainConsole(paper, plan)


def test_each_part_of_the_start_is_a_line_and_no_phase_of_a_step(plain: PlainConsole, paper: io.StringIO) -> None:
    for name in ("start: loading vLLM", "update"):
        plain.phase(name)
    assert paper.getvalue() == "start: loading vLLM\n"


def test_a_step_is_one_line(plain: PlainConsole, paper: io.StringIO, step_row: Make) -> None:
    plain.row(step_row(20))
    assert paper.getvalue() == (
        "step 20  exploit 10/40  turns 8  success 0.50  reward 0.45  used 5.25  loss -0.0123  kl 1.2e-04"
        "  entropy 1.23  4,000 tokens/s  2.00s  left 4m 20s\n"
    )


def test_a_step_of_imitation_tells_what_it_measured_and_no_more(plain: PlainConsole, paper: io.StringIO) -> None:
    row = {"total_step": 3, "stage": "imitate", "step": 3, "train/loss": 2.5, "train/tokens": 900, "guard/action": ""}
    plain.row({**row, "timing_s/update": 0.5, "timing_s/step": 0.5})
    assert paper.getvalue() == "step 3  imitate 3/10  loss 2.5  1,800 tokens/s  0.50s  left over 4s\n"


def test_a_measurement_is_one_line_with_its_interval(plain: PlainConsole, paper: io.StringIO, eval_row: Make) -> None:
    plain.row(eval_row(20, 0.41, **{"eval/textcraft/greedy_success": 0.5, "eval/textcraft@4/success": 0.2}))
    assert paper.getvalue() == "eval at step 20  textcraft 0.41 [0.31, 0.51] greedy 0.50  textcraft@4 0.20  3.00s\n"


def test_a_guard_is_seen_in_its_step_and_heard_in_a_note(
    plain: PlainConsole, paper: io.StringIO, step_row: Make
) -> None:
    plain.row(step_row(20, **{"guard/action": "roll_back"}))
    plain.note("rolled back to the weights\nof step 10")
    assert "  guard roll_back  2.00s" in paper.getvalue()
    assert paper.getvalue().endswith("note: rolled back to the weights\\nof step 10\n")


def test_phases_and_episodes_are_not_lines(plain: PlainConsole, paper: io.StringIO, played: Make) -> None:
    plain.phase("rollout")
    plain.episode(played(("go", "there")))
    assert paper.getvalue() == ""


def test_the_last_words_come_last(plain: PlainConsole, paper: io.StringIO) -> None:
    plain.note("a")
    plain.close(["finished", "  model  here"])
    assert paper.getvalue() == "note: a\nfinished\n  model  here\n"


def test_a_name_that_the_stream_cannot_say_is_escaped(plan: Plan) -> None:
    out = Tty("ascii", tty=False)
    PlainConsole(out, plan).note("größe")
    assert out.text() == "note: gr\\xf6\\xdfe\n"


# --- which of the two ----------------------------------------------------------------------------------------------


def test_a_terminal_that_can_redraw_is_shown_the_live_view() -> None:
    assert wants_live(Tty(), {"TERM": "xterm-256color"})


@pytest.mark.parametrize(
    ("out", "environ"),
    [
        (Tty(tty=False), {"TERM": "xterm"}),
        (Tty("ascii"), {"TERM": "xterm"}),
        (Tty(), {"TERM": "dumb"}),
        (Tty(), {}),
        (Tty(), {"TERM": "xterm", "NO_COLOR": "1"}),
    ],
    ids=["no terminal", "no block characters", "dumb", "unknown", "no colour"],
)
def test_others_are_told_in_plain_lines(out: Tty, environ: dict[str, str]) -> None:
    assert not wants_live(out, environ)


# --- the live view -------------------------------------------------------------------------------------------------


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def screen() -> Screen:
    return Screen(file=io.StringIO(), width=72, height=20, record=True, force_terminal=True, color_system=None)


@pytest.fixture
def live(screen: Screen, plan: Plan, watch: Watch) -> LiveConsole:
    return LiveConsole(screen, plan, watch)


def shown(console: LiveConsole, screen: Screen) -> list[str]:
    """The frame as it stands."""
    screen.print(console.frame())
    return [line.rstrip() for line in screen.export_text().splitlines()]


def test_the_first_frame_says_that_the_run_starts(live: LiveConsole, screen: Screen) -> None:
    assert shown(live, screen) == ["─" * 72, "craft  start", "0s"]


def test_a_frame_in_the_middle_of_a_run(
    live: LiveConsole, screen: Screen, watch: Watch, step_row: Make, eval_row: Make, played: Make
) -> None:
    live.row(eval_row(10, 0.41))
    for step in range(8):
        live.row(step_row(11 + step, **{"rollout/success": step / 7}))
    live.row(eval_row(18, 0.8))
    live.phase("rollout")
    for _ in range(3):
        live.episode(
            played(
                ("look", "You see a log."),
                ("get log", "You have 1 log."),
                (None, "Say one command."),
                ("craft plank", "You win."),
                reply="I think that I should",
            )
        )
    watch.now += 75
    assert shown(live, screen) == [
        "─" * 72,
        "craft  exploit 2/3  step 8/40, 18 in all  rollout, 3 episodes",
        "success 1.00  ▁▂▃▄▅▆▇█",
        "turns 8  reward 0.45  used 5.25  loss -0.0123  kl 1.2e-04  entropy 1.23",
        "4,000 tokens/s",
        "eval textcraft  0.41 -> 0.80 [0.70, 0.90]",
        "1m 15s  left 4m 48s  2.00s a step",
        "textcraft craft-torch: 4 of 8 turns, done, success",
        "  > get log",
        "    You have 1 log.",
        "  > I think that I should (no action)",
        "    Say one command.",
        "  > craft plank",
        "    You win.",
    ]


def test_hostile_text_of_a_model_moves_nothing_and_colours_nothing(
    live: LiveConsole, screen: Screen, played: Make
) -> None:
    attack = "\x1b[2J[bold red]x[/bold red]\r\n:smile: \u202eevil" + "y" * 1_000_000
    live.episode(played((attack, attack), task=attack, ending=Ending.HORIZON, success=False))
    live.phase(attack)
    lines = shown(live, screen)
    safe = r"\x1b[2J[bold red]x[/bold red]\r\n:smile: \u202eevil"
    assert len(lines) == 6
    assert all(len(line) <= 72 and line.isprintable() for line in lines)
    assert lines[4].startswith(f"  > {safe}y")
    assert lines[5].startswith(f"    {safe}y")


def test_only_what_is_new_is_drawn(live: LiveConsole, screen: Screen, step_row: Make) -> None:
    live.start(by_itself=False)
    live.draw()
    assert "craft" in screen.export_text()
    live.draw()
    assert screen.export_text() == ""
    live.draw(idle=True)
    assert "craft" in screen.export_text()
    live.row(step_row(11))
    live.draw()
    assert "step 1/40" in screen.export_text()
    live.close()


def test_measurements_and_notes_stay_and_hostile_ones_are_escaped(
    live: LiveConsole, screen: Screen, eval_row: Make
) -> None:
    live.start(by_itself=False)
    live.row(eval_row(20))
    live.note("guard 'entropy_min' \x1b[31m[red]spoke[/red]")
    live.draw()
    live.close()
    text = screen.export_text()
    assert "eval at step 20  textcraft 0.41 [0.31, 0.51]  3.00s\n" in text
    assert "note: guard 'entropy_min' \\x1b[31m[red]spoke[/red]\n" in text


def test_the_view_draws_by_itself_and_leaves_nothing_behind(plan: Plan, step_row: Make) -> None:
    out, drawn = Tty(), threading.Event()

    def clock() -> float:
        drawn.set()
        return 0.0

    console = console_on(Terminal(out=out, live=True, width=60), plan, clock)
    console.row(step_row(11))
    drawn.clear()
    assert drawn.wait(10), "no frame within ten seconds"
    console.note("a last note")
    console.close(["finished"])
    assert "note: a last note\n" in out.text()
    assert out.text().endswith("finished\n")
    assert [thread.name for thread in threading.enumerate() if thread.name == "agym console"] == []


def test_a_terminal_that_goes_away_ends_the_view_and_not_the_run(plan: Plan, step_row: Make) -> None:
    out = Tty()
    console = console_on(Terminal(out=out, live=True, width=60), plan, lambda: 0.0)
    out.close()
    console.row(step_row(11))
    next(t for t in threading.enumerate() if t.name == "agym console").join(10)
    assert [t.name for t in threading.enumerate() if t.name == "agym console"] == []
    console.row(step_row(12))
