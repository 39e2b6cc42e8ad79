"""Rooms drawn by hand: what is seen of them, how it is said, and what commands do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from agym.envs.babyai.actions import GridCommand, parse_command
from agym.envs.babyai.describe import describe_view
from agym.envs.babyai.moves import MoveRefusal, list_available, perform, plan_moves
from agym.envs.babyai.routes import WayFinder
from agym.envs.babyai.world import GridWorld
from minigrid.core.actions import Actions
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Box, Door, Goal, Key, Lava, Wall, WorldObj
from minigrid.minigrid_env import MiniGridEnv

FACES = ">v<^"


class Room(MiniGridEnv):
    """As drawn: `#` is wall, `.` is floor, one of `>v<^` is the agent, the rest is in the legend."""

    def __init__(self, picture: str, things: Mapping[str, WorldObj], carrying: WorldObj | None = None) -> None:
        self.rows, self.things = picture.split(), things
        space = MissionSpace(mission_func=lambda: "stay")
        super().__init__(mission_space=space, width=len(self.rows[0]), height=len(self.rows), max_steps=50)
        self.reset()
        self.carrying = carrying

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid, self.mission = Grid(width, height), "stay"
        for y, row in enumerate(self.rows):
            for x, sign in enumerate(row):
                self._put(sign, x, y)

    def _put(self, sign: str, x: int, y: int) -> None:
        if sign in FACES:
            self.agent_pos, self.agent_dir = (x, y), FACES.index(sign)
        elif sign != ".":
            self.grid.set(x, y, Wall() if sign == "#" else self.things[sign])


def room(picture: str, carrying: WorldObj | None = None, **things: WorldObj) -> GridWorld:
    return GridWorld(Room(picture, things, carrying))


def told(world: GridWorld, text: str) -> Any:
    command = parse_command(text, macros=True)
    assert isinstance(command, GridCommand)
    return plan_moves(command, world, WayFinder(world))


def done(world: GridWorld, text: str) -> GridWorld:
    moves = told(world, text)
    assert not isinstance(moves, MoveRefusal), moves.reason
    perform(world, moves)
    return world


HALL = """
#######
#.....#
#.r...#
#..^..#
#######
"""
TWO_ROOMS = """
#########
#...#...#
#>..d..b#
#...#...#
#########
"""


# --- what is seen, and how it is said ------------------------------------------------------------------------------


def test_things_are_listed_from_the_nearest_with_where_they_are() -> None:
    world = room("#####\n#k.b#\n#...#\n#.^r#\n#####", k=Key("blue"), b=Ball("grey"), r=Ball("red"))
    assert describe_view(world).splitlines()[0] == (
        "You see red ball 1, 1 step to the right; blue key 1, 2 steps ahead and 1 step to the left; "
        "grey ball 1, 2 steps ahead and 1 step to the right."
    )


def test_what_is_right_in_front_is_called_so() -> None:
    assert "green box 1, directly in front of you" in describe_view(room("####\n#x.#\n#^.#\n####", x=Box("green")))


def test_walls_are_told_as_lines() -> None:
    world = room(HALL, r=Ball("red"))
    assert (
        "Walls: 3 steps ahead (3 left to 3 right); 3 steps to the left (0 to 3 ahead); "
        "3 steps to the right (0 to 3 ahead)." in describe_view(world)
    )


def test_a_lone_wall_is_told_by_its_place() -> None:
    assert (
        "2 steps ahead" in describe_view(room("#######\n#.....#\n#..#..#\n#.....#\n#..^..#\n#######")).splitlines()[1]
    )


def test_every_wall_in_view_is_on_a_line_that_is_told() -> None:
    from agym.envs.babyai.describe import _columns, _rows

    squares = {(0, 1), (0, 2), (1, 2), (2, 2), (4, -1), (2, 0)}
    lines = [*_rows(squares), *_columns(squares)]
    assert {square for line in lines for square in line} == squares
    assert [(0, 2), (1, 2), (2, 2)] in lines


def test_lava_is_told_like_walls() -> None:
    assert "Lava: 1 step ahead (1 left to 1 right)." in describe_view(
        room("#####\n#...#\n#lll#\n#.^.#\n#####", l=Lava())
    )


@pytest.mark.parametrize(
    ("door", "state"),
    [(Door("red"), "closed"), (Door("red", is_open=True), "open"), (Door("red", is_locked=True), "locked")],
)
def test_doors_are_told_with_their_state(door: Door, state: str) -> None:
    assert f"red door 1 ({state}), 3 steps ahead" in describe_view(room(TWO_ROOMS, d=door, b=Ball("red")))


def test_what_is_behind_a_closed_door_is_not_seen() -> None:
    assert "ball" not in describe_view(room(TWO_ROOMS, d=Door("red"), b=Ball("red")))
    assert "red ball 1, 6 steps ahead" in describe_view(room(TWO_ROOMS, d=Door("red", is_open=True), b=Ball("red")))


def test_what_is_carried_and_what_one_stands_in_is_told() -> None:
    world = room(TWO_ROOMS, carrying=Key("blue"), d=Door("red", is_open=True), b=Ball("red"))
    assert describe_view(world).splitlines()[-1] == "You are carrying blue key 1."
    done(world, "move forward 3")
    assert "You are standing in red door 1 (open)." in describe_view(world)


def test_names_stay_when_the_agent_turns_and_other_things_come_into_view() -> None:
    picture = "#######\n#b.>.c#\n#######"
    far, near = Ball("red"), Ball("red")
    world = room(picture, b=near, c=far)
    assert world.names == {far: "red ball 1"}
    done(done(world, "turn left"), "turn left")
    assert world.names == {far: "red ball 1", near: "red ball 2"}


def test_a_thing_put_elsewhere_keeps_its_name_and_has_a_new_place() -> None:
    ball = Ball("red")
    world = done(room("#####\n#>b.#\n#...#\n#####", b=ball), "pick up red ball 1")
    assert ball not in world.places
    done(done(world, "turn right"), "drop")
    assert (world.places[ball], world.names[ball]) == ((1, 2), "red ball 1")


def test_a_thing_that_moved_by_itself_is_known_in_one_place_only() -> None:
    ball = Ball("blue")
    world = room("#####\n#>.b#\n#...#\n#####", b=ball)
    world.level.grid.set(3, 1, None)
    world.level.grid.set(2, 2, ball)
    world.act(Actions.left)
    world.act(Actions.right)
    assert [cell for cell, thing in world.seen.items() if thing is ball] == [(2, 2)]


# --- manoeuvres ----------------------------------------------------------------------------------------------------


def test_going_to_a_thing_ends_in_front_of_it() -> None:
    world = done(room(HALL, r=Ball("red")), "go to red ball 1")
    assert world.before is not None
    assert world.before.type == "ball"


def test_the_way_leads_round_what_stands_there_and_not_over_lava() -> None:
    world = room("#####\n#..b#\n#.l.#\n#>l.#\n#####", b=Ball("red"), l=Lava())
    done(world, "go to red ball 1")
    assert not world.over
    assert world.pose[:2] == (2, 1)


def test_going_to_the_goal_is_to_stand_on_it() -> None:
    assert done(room("#####\n#>.g#\n#####", g=Goal()), "go to green goal 1").won


def test_going_through_a_door_opens_it_and_ends_behind_it() -> None:
    world = done(room(TWO_ROOMS, d=Door("red"), b=Ball("red")), "go through red door 1")
    assert world.pose == (5, 2, 0)


def test_a_locked_door_asks_for_its_key() -> None:
    world = room(TWO_ROOMS, d=Door("red", is_locked=True), b=Ball("red"))
    for text in ("open red door 1", "go through red door 1"):
        assert told(world, text) == MoveRefusal("red door 1 is locked: you need a red key.")
    world = room(TWO_ROOMS, carrying=Key("blue"), d=Door("red", is_locked=True), b=Ball("red"))
    assert isinstance(told(world, "open red door 1"), MoveRefusal)
    world = room(TWO_ROOMS, carrying=Key("red"), d=Door("red", is_locked=True), b=Ball("red"))
    assert done(world, "go through red door 1").pose == (5, 2, 0)


def test_dropping_next_to_a_thing_puts_it_at_its_side_and_not_across() -> None:
    box = Box("green")
    world = done(room(HALL, carrying=box, r=Ball("red")), "drop next to red ball 1")
    x, y = world.places[box]
    assert abs(x - 2) + abs(y - 2) == 1


def test_an_opened_box_shows_what_was_in_it() -> None:
    world = room("#####\n#>.x#\n#####", x=Box("green", Key("red")))
    assert "red key 1, directly in front of you" in describe_view(done(world, "open green box 1"))
    assert told(world, "go to green box 1") == MoveRefusal("You have not seen green box 1.")


def test_a_manoeuvre_stops_where_the_way_is_blocked() -> None:
    world = room(HALL, r=Ball("red"))
    moves = told(world, "move forward 9")
    assert not perform(world, moves)
    assert world.pose[:2] == (3, 1)


def test_what_was_seen_can_be_gone_to_when_it_is_out_of_view() -> None:
    world = room(HALL, r=Ball("red"))
    done(done(world, "turn right"), "turn right")
    assert "ball" not in describe_view(world)
    assert isinstance(told(world, "go to red ball 1"), tuple)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("go to blue ball 1", "You have not seen blue ball 1."),
        ("go to red ball 2", "You have not seen red ball 2."),
        ("pick up red ball 1", "Your hands are full: you are carrying blue key 1."),
        ("go to blue key 1", "You are carrying blue key 1."),
        ("drop next to blue key 1", "You are carrying blue key 1."),
        ("open red ball 1", "You cannot open red ball 1."),
        ("close red ball 1", "You cannot close red ball 1."),
        ("go through red ball 1", "You cannot go through red ball 1."),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert told(room(HALL, carrying=Key("blue"), r=Ball("red")), text) == MoveRefusal(reason)


def test_more_refusals() -> None:
    world = room(TWO_ROOMS, d=Door("red", is_open=True), b=Ball("red"))
    assert told(world, "pick up red door 1") == MoveRefusal("You cannot pick up red door 1.")
    assert told(world, "open red door 1") == MoveRefusal("red door 1 is open.")
    assert told(world, "drop next to red door 1") == MoveRefusal("You are carrying nothing.")
    walled = room("#######\n#>.#b.#\n#.....#\n#######", b=Lava())
    assert told(walled, "go to red lava 1") == MoveRefusal("You have not seen red lava 1.")
    assert told(done(world, "go to red ball 1"), "go to red ball 1") == MoveRefusal(
        "You are directly in front of red ball 1."
    )


def test_a_thing_out_of_reach_is_refused() -> None:
    world = room("#####\n#.b.#\n#lll#\n#.^.#\n#####", b=Ball("red"), l=Lava())
    assert told(world, "go to red ball 1") == MoveRefusal("You do not know a way to red ball 1.")


def test_the_number_may_be_left_out_where_there_is_one_such_thing() -> None:
    world = room(HALL, r=Ball("red"))
    assert told(world, "go to red ball") == told(world, "go to red ball 1")
    twice = room("#####\n#b.c#\n#...#\n#.^.#\n#####", b=Ball("red"), c=Ball("red"))
    assert told(twice, "go to red ball") == MoveRefusal("There is more than one: red ball 1, red ball 2. Say which.")


# --- what is possible ----------------------------------------------------------------------------------------------


def test_available_actions_are_those_that_come_to_something() -> None:
    world = room(TWO_ROOMS, d=Door("red"), b=Ball("red"))
    assert list(list_available(world, WayFinder(world), needs_done=False)) == [
        "turn left",
        "turn right",
        "move forward",
        "check available actions",
        "go to red door 1",
        "open red door 1",
        "go through red door 1",
    ]


def test_without_manoeuvres_only_single_steps_are_available() -> None:
    world = room("####\n#>b#\n#..#\n####", b=Ball("red"))
    listed = list(list_available(world, None, needs_done=True))
    assert listed == ["turn left", "turn right", "pick up", "done", "check available actions"]


def test_a_door_underfoot_can_be_left_and_faced() -> None:
    world = done(room(TWO_ROOMS, d=Door("red", is_open=True), b=Ball("red")), "move forward 3")
    assert done(world, "close red door 1").before is not None
    assert "red door 1 (closed), directly in front of you" in describe_view(world)
