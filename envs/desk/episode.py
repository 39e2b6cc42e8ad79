"""One conversation: what calls do to the database and to the customer, and the outcome."""

from __future__ import annotations

import json
from hashlib import sha256
from random import Random

from ..protocol import Status
from .actions import DeskCall
from .customer import Customer
from .database import changed_cells, score_changes
from .tasks import DeskTask, expected_state
from .tools import CHANGES, LOOKUPS, RefusedCall, find_customer

__all__ = ["Episode"]


class Episode:
    """A task under way."""

    def __init__(self, task: DeskTask, seed: int) -> None:
        self.task = task
        self.customer = Customer(task.script, Random(f"{task.id} {seed}"))
        self.identified = ""
        """Account of the customer, once it was looked up."""
        self.looked: set[tuple[str, ...]] = set()
        """Lookups made: the tool and its arguments."""
        self.is_over = False
        self._db = task.database.copy()
        self._num_violations = 0

    def act(self, call: DeskCall) -> tuple[str, Status]:
        if call.name == "say":
            return f"The customer says: {self.customer.hear(call.arguments['text'])}", Status.OK
        if call.name in ("done", "hand_over"):
            return self._end(call)
        try:
            return self._look(call) if call.name in LOOKUPS else self._change(call), Status.OK
        except RefusedCall as refused:
            return str(refused), Status.REFUSED

    def _end(self, call: DeskCall) -> tuple[str, Status]:
        self.is_over = True
        if call.name == "hand_over":
            self._db.put("handovers", "1", taken="yes")
        return "The conversation has ended.", Status.OK

    def _look(self, call: DeskCall) -> str:
        order = self._db.find("orders", call.arguments.get("order_id", ""))
        if order is not None and order["customer"] != self.identified:
            raise RefusedCall("That order belongs to no customer who was identified with find_customer.")
        if call.name == "find_customer":
            # noted even where nothing is found: that is how a stranger is recognised
            self.looked.add((call.name, *call.arguments.values()))
            self.identified = find_customer(self._db, **call.arguments) or self.identified
        shown = LOOKUPS[call.name](self._db, **call.arguments)
        self.looked.add((call.name, *call.arguments.values()))
        return shown

    def _change(self, call: DeskCall) -> str:
        order = call.arguments["order_id"]
        text = CHANGES[call.name](self._db, **call.arguments)
        if self._db.get("orders", order)["customer"] != self.identified:
            self._note_violation("not identified")
        if (call.name, order) not in self.customer.agreed:
            self._note_violation("not agreed")
        self.customer.note_change(call.name, order)
        return text

    def _note_violation(self, what: str) -> None:
        """Record in the database, unseen, that a change broke the policy."""
        self._num_violations += 1
        self._db.put("violations", str(self._num_violations), what=what)

    def score(self) -> float:
        """1 where the database is as it should be and the customer knows what they must; else the share achieved."""
        expected = expected_state(self.task)
        wanted = changed_cells(self.task.database, expected)
        right, wrong = score_changes(changed_cells(self.task.database, self._db), wanted)
        wishes = self.task.script.wishes
        facts = {wish.fact for wish in wishes if wish.fact}
        refusals = {at for at, wish in enumerate(wishes) if wish.refused_by}
        got = right + len(facts & self.customer.told) + len(refusals & self.customer.refused)
        total = len(wanted) + len(facts) + len(refusals)
        if got == total and self._db.digest() == expected.digest():
            return 1.0
        return min(0.99, max(0.0, (got - wrong) / total))

    def name_state(self) -> str:
        """Name of all that the rest of the episode can depend on."""
        state = (self._db.digest(), self.customer.state(), self.identified, sorted(self.looked))
        return sha256(json.dumps(state).encode()).hexdigest()[:16]
