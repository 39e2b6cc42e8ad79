from __future__ import annotations

import json
from importlib.resources import files
from random import Random

import pytest
from agym.envs.desk import Desk, create
from agym.envs.desk.actions import MalformedCall, list_tools, parse_call
from agym.envs.desk.customer import Customer, Script, Wish, says_amount
from agym.envs.desk.database import Database
from agym.envs.desk.episode import Episode
from agym.envs.desk.expert import make_plan
from agym.envs.desk.options import DeskOptions
from agym.envs.desk.tasks import KINDS, DeskTask, load_task
from agym.envs.desk.tools import CHANGES, LOOKUPS
from agym.envs.errors import BadOption, EpisodeOver, UnknownTask
from agym.envs.protocol import Status, Step

ALL = Desk().tasks("train") + Desk().tasks("test")


def call(name: str, **arguments: str) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def play(env: Desk, *actions: str) -> Step:
    return [env.step(action) for action in actions][-1]


def identify(env: Desk, task: DeskTask) -> None:
    asked = call("say", text="Please tell me your email address and your postcode.")
    play(env, asked, call("find_customer", email=task.script.email, postcode=task.script.postcode))


def begin(kind: str, number: int = 0) -> tuple[Desk, DeskTask]:
    env, task = Desk(), load_task(f"{kind}-{number}")
    env.reset(task.id, 0)
    return env, task


# --- tasks ---


def test_the_expert_solves_every_task_in_time() -> None:
    env = Desk()
    for task in ALL:
        env.reset(task, 1)
        actions = env.expert(task, 1)
        steps = [env.step(action) for action in actions]
        assert (steps[-1].reward, steps[-1].terminated) == (1.0, True), task
        assert all(step.reward == 0 and step.status is not Status.INVALID for step in steps[:-1])
        assert len(actions) <= (env.spec.max_turns or 0)


def test_every_step_of_the_expert_has_its_reason() -> None:
    steps = make_plan(load_task("cancel_late-0"), 0)
    assert all(step.reason for step in steps)
    assert any("the policy forbids it: the order is" in step.reason for step in steps)


def test_there_are_over_two_hundred_different_tasks_and_splits_share_no_people_and_no_goods() -> None:
    env, people, goods = Desk(), dict[str, set[str]](), dict[str, set[str]]()
    for split in ("train", "test"):
        tasks = [load_task(task) for task in env.tasks(split)]
        people[split] = {row["name"].split()[1] for task in tasks for _, row in task.database.select("customers")}
        goods[split] = {row["sku"] for task in tasks for _, row in task.database.select("items")}
    assert not people["train"] & people["test"]
    assert not goods["train"] & goods["test"]
    assert len({load_task(task).database.digest() for task in ALL}) == len(ALL) == 14 * 30


def test_levels_choose_the_tasks() -> None:
    env = create({"levels": ["easy"]})
    assert {env.difficulty(task) for task in env.tasks("train")} == {"easy"}
    with pytest.raises(UnknownTask, match="at the levels easy"):
        env.reset("stranger-0", 0)
    with pytest.raises(UnknownTask):
        env.reset("cancel-30", 0)


def test_options_have_the_defaults_of_the_schema() -> None:
    data = json.loads(files("agym.envs.desk").joinpath("env.json").read_text())
    defaults = DeskOptions()
    assert {name: schema["default"] for name, schema in data["options"].items()} == {
        "levels": list(defaults.levels),
        "max_steps": defaults.max_steps,
    }
    with pytest.raises(BadOption, match="max_steps"):
        create({"max_steps": 1})


def test_ten_tools_have_a_schema_and_a_handler() -> None:
    names = [tool.name for tool in list_tools()]
    assert len(names) == 10
    assert set(names) == {*CHANGES, *LOOKUPS, "say", "hand_over", "done"}


# --- policy ---


def test_what_the_policy_forbids_fails_even_where_the_tool_does_it_and_the_customer_agrees() -> None:
    env, task = begin("cancel_late")
    order = task.script.wishes[0].order
    identify(env, task)
    play(env, call("say", text=f"Shall I cancel order {order}?"))
    assert env.step(call("cancel_order", order_id=order, reason="mistake")).status is Status.OK
    assert play(env, "say That is done.", "done").reward == 0


def test_a_change_without_the_customers_yes_is_no_full_success() -> None:
    env, task = begin("cancel")
    (expected,) = task.changes
    identify(env, task)
    play(env, call("cancel_order", **expected.arguments), f"say Done: {task.script.wishes[0].fact} is refunded.")
    assert 0 < env.step("done").reward < 1


def test_a_change_without_identity_is_no_full_success() -> None:
    env, task = begin("address")
    (expected,) = task.changes
    play(env, f"say Shall I change the address of order {expected.arguments['order_id']}?")
    play(env, call("change_address", **expected.arguments))
    assert 0 < env.step("done").reward < 1


def test_a_refund_to_another_method_fails() -> None:
    env, task = begin("other_method")
    (expected,) = task.changes
    identify(env, task)
    play(env, f"say Shall I return the item of order {expected.arguments['order_id']}?")
    play(env, call("return_item", **{**expected.arguments, "refund_to": "P2"}))
    assert env.step("done").reward < 0.5


def test_the_right_method_may_be_offered_at_once() -> None:
    env, task = begin("other_method")
    (expected,) = task.changes
    order, fact = expected.arguments["order_id"], task.script.wishes[1].fact
    identify(env, task)
    play(env, f"say It cannot go there. Shall I return the item of {order} for {fact}, to the method you paid with?")
    play(env, call("return_item", **expected.arguments))
    assert play(env, "say That is done.", "done").reward == 1


def test_giving_in_to_what_is_insisted_on_is_told_apart_from_refusing_to_the_end() -> None:
    env, task = begin("final_sale")
    identify(env, task)
    play(env, "say I am sorry, that is not possible.")
    assert env.step("done").reward == 0
    env.reset(task.id, 0)
    identify(env, task)
    for _ in range(task.script.insists + 1):
        play(env, "say I am sorry, that is not possible.")
    assert env.step("done").reward == 1


def test_handing_over_is_no_way_out() -> None:
    for kind in ("cancel", "final_sale", "question"):
        env, _ = begin(kind)
        assert env.step(call("hand_over", summary="too hard for me")).reward == 0


def test_the_amount_must_be_told() -> None:
    env, task = begin("return")
    (expected,) = task.changes
    identify(env, task)
    play(env, f"say Shall I return the item of order {expected.arguments['order_id']}?")
    play(env, call("return_item", **expected.arguments))
    assert 0 < env.step("done").reward < 1


def test_orders_of_others_and_of_the_unidentified_are_not_shown() -> None:
    env, task = begin("cancel")
    ((theirs, _),) = task.database.select("orders", customer="C2")
    assert env.step(call("get_order", order_id=task.script.wishes[0].order)).status is Status.REFUSED
    identify(env, task)
    assert env.step(call("get_order", order_id=task.script.wishes[0].order)).status is Status.OK
    assert env.step(call("get_order", order_id=theirs)).status is Status.REFUSED


def test_case_and_spaces_of_an_address_do_not_count() -> None:
    env, task = begin("address")
    actions = env.expert(task.id, 0)
    shouted = [action.replace(task.changes[0].arguments["city"], "  NORTHAM ") for action in actions]
    plain = [action.replace(task.changes[0].arguments["city"], "Northam") for action in actions]
    states = []
    for each in (shouted, plain):
        env.reset(task.id, 0)
        states.append([env.step(action) for action in each][-2].info["state"])
    assert states[0] == states[1]


def test_too_many_steps_truncate() -> None:
    env = create({"max_steps": 20})
    env.reset("cancel-0", 0)
    steps = [env.step("say I see.") for _ in range(20)]
    assert [step.truncated for step in steps] == [False] * 19 + [True]
    with pytest.raises(EpisodeOver):
        env.step("done")


# --- the customer ---

CANCEL = Wish(
    text="I would like to cancel.",
    order="W10001",
    tool="cancel_order",
    answers={"reason": "It is too slow."},
    fact="9.50",
)


def meet(*wishes: Wish, insists: int = 0) -> Customer:
    script = Script(name="Ada Alder", email="ada@mail.example", postcode="BK10 10", wishes=wishes, insists=insists)
    return Customer(script, Random(0))


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("What is your e-mail?", "My email address is ada@mail.example."),
        ("Please give me your post code.", "My postcode is BK10 10."),
        ("I need your email address first.", "My email address is ada@mail.example."),
        ("Could you verify your identity?", "My email address is ada@mail.example. My postcode is BK10 10."),
        ("Can I have your order number?", "It is order W10001."),
        ("Why do you want to cancel, and which order is it?", "It is order W10001. It is too slow."),
    ],
)
def test_a_customer_tells_what_is_asked_for(said: str, answer: str) -> None:
    assert meet(CANCEL).hear(said) == answer


def test_a_customer_agrees_only_to_the_change_that_is_named_with_its_order() -> None:
    customer = meet(CANCEL)
    for said in ("Shall I go ahead?", "Shall I cancel it?", "Shall I cancel W10002?", "Shall I return W10001?"):
        customer.hear(said)
        assert not customer.agreed, said
    assert customer.hear("Shall I cancel order w10001?").startswith("Yes")
    assert customer.agreed == {("cancel_order", "W10001")}


def test_a_customer_raises_the_next_wish_when_the_first_was_carried_out() -> None:
    question = Wish(text="When does it come?", order="W10002", fact="2031-05-25")
    customer = meet(CANCEL, question)
    customer.note_change("cancel_order", "W10002")
    assert not customer.is_met
    customer.note_change("cancel_order", "W10001")
    assert "When does it come?" in customer.hear("Your 9.50 are on their way.")
    customer.hear("On 2031-05-25.")
    assert (customer.wish, customer.told) == (None, {"9.50", "2031-05-25"})


def test_a_customer_insists_on_what_is_forbidden_as_often_as_the_script_says() -> None:
    customer = meet(Wish(text="Cancel it.", order="W1", tool="cancel_order", refused_by="it was shipped"), insists=2)
    pleas = [customer.hear("That cannot be done.") for _ in range(2)]
    assert len(set(pleas)) == 2
    assert not customer.refused
    customer.hear("That cannot be done.")
    assert customer.refused == {0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It is 9.50.", True),
        ("9.50, as you paid", True),
        ("19.50", False),
        ("9.505", False),
        ("9.50.1", False),
        ("9,50", False),
    ],
)
def test_an_amount_is_said_only_as_a_whole(text: str, said: bool) -> None:
    assert says_amount(text, "9.50") is said


# --- hostile actions ---


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("", "no call"),
        ("say", "is empty"),
        ("say \ud800", "plain text"),
        ("done now", "no call"),
        ("[" * 3_000, "no call"),
        ("x" * 5_000, "longer than"),
        ("[]", "no call"),
        ('{"name": 1}', "no call"),
        ('{"name": "done", "more": 1}', "no call"),
        ('{"name": "done", "arguments": []}', "must be an object"),
        ('{"name": "done", "arguments": {"a": "b"}}', "takes no arguments"),
        ('{"name": "drop_table"}', "no tool of that name. The tools are say, find_customer"),
        ('{"name": "get_order", "arguments": {}}', "needs the argument 'order_id': number of the order"),
        ('{"name": "get_order", "arguments": {"order_id": 17}}', "must be a text"),
        ('{"name": "get_order", "arguments": {"order_id": NaN}}', "must be a text"),
        ('{"name": "get_order", "arguments": {"order_id": "a\\u0000b"}}', "plain text"),
        ('{"name": "get_order", "arguments": {"order": "W1"}}', "takes only order_id"),
        (call("cancel_order", order_id="W1", reason="bored"), "must be one of: not needed, mistake, too slow"),
        (call("find_customer", email="a" * 101, postcode="x"), "at most 100 characters"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(action: str, why: str) -> None:
    env, _ = begin("cancel")
    step = env.step(action)
    assert (step.status, step.ended) == (Status.INVALID, False)
    assert why in step.observation.text
    assert len(step.observation.text) < 400
    with pytest.raises(MalformedCall):
        parse_call(action)


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("cancel_order", {"order_id": "W0", "reason": "mistake"}, "no order with that number"),
        ("cancel_order", {"order_id": "{order}", "reason": "mistake"}, "cannot be cancelled"),
        ("change_address", {"order_id": "{order}", "street": "a", "city": "b", "postcode": "c"}, "cannot be changed"),
        ("return_item", {"order_id": "{order}", "item_id": "I9", "refund_to": "P1"}, "no item with that id"),
        ("return_item", {"order_id": "{order}", "item_id": "{item}", "refund_to": "P9"}, "no payment method"),
        ("return_item", {"order_id": "{order}", "item_id": "{item}", "refund_to": "P3"}, "of another account"),
        ("return_item", {"order_id": "{order}", "item_id": "{other}", "refund_to": "P1"}, "of another order"),
        ("exchange_item", {"order_id": "{order}", "item_id": "{item}", "new_sku": "S999"}, "no variant"),
        ("exchange_item", {"order_id": "{order}", "item_id": "{item}", "new_sku": "{sku}"}, "the customer has"),
        ("get_product", {"product": "yacht"}, "The products are rain jacket"),
    ],
)
def test_what_is_not_possible_is_refused_and_changes_nothing(tool: str, arguments: dict[str, str], why: str) -> None:
    episode = Episode(load_task("return-0"), 0)
    db = episode.task.database
    order = episode.task.script.wishes[0].order
    item, row = next(db.select("items", order=order))
    other = next(key for key, each in db.select("items") if each["order"] != order)
    named = {name: each.format(order=order, item=item, other=other, sku=row["sku"]) for name, each in arguments.items()}
    before = episode.name_state()
    text, status = episode.act(parse_call(call(tool, **named)))
    assert status is Status.REFUSED
    assert why in text
    assert episode.name_state() == before


def test_no_mixture_of_calls_raises_or_wins() -> None:
    rng, env = Random(7), Desk()
    values = ("W0", "I1", "I2", "P1", "P2", "S00", "S11", "mistake", "yes", "tent", "{}", "%s")
    for kind in KINDS:
        if kind == "human":
            continue
        for seed in range(4):
            env.reset(f"{kind}-{seed}", seed)
            orders = [key for key, _ in load_task(f"{kind}-{seed}").database.select("orders")]
            for _ in range(39):
                tool = rng.choice([each for each in list_tools() if each.name not in ("done", "hand_over")])
                known = list(tool.parameters["properties"])  # type: ignore[call-overload, index, arg-type]
                filled = {name: rng.choice(orders if name == "order_id" else values) for name in known}
                step = env.step(call(tool.name, **filled))
            assert (env.step("done") if not step.ended else step).reward < 1


def test_the_order_in_which_rows_are_made_does_not_count() -> None:
    one, other = Database(), Database()
    one.put("a", "1", x="X", y="y")
    one.put("b", "1", z="z")
    other.put("b", "1", z="Z ")
    other.put("a", "1", y="y", x="x")
    assert one.digest() == other.digest()
    other.put("a", "2", x="x")
    assert one.digest() != other.digest()
