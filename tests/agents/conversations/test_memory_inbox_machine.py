"""Any order of verbs: the queue answers and tells what a plain list with the rules written out would."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ade.agents.conversations.inbox import BlockedReason, ClearReason, DropReason
from ade.agents.conversations.model import ItemBatch, ItemKind, NewItem, StoredItem
from tests.agents.conversations.items import ToldQueue, message, of_kind
from tests.depth import examples

SCOPES: list[tuple[str | None, str | None]] = [(None, None), ("a", "1"), ("a", "2"), ("b", "1"), ("a", None)]
LIMIT = DropReason.BUFFER_LIMIT


@st.composite
def items(draw: st.DrawFn) -> NewItem:
    kind = draw(st.sampled_from(ItemKind))
    agent, conversation = draw(st.sampled_from(SCOPES))
    if kind is ItemKind.MESSAGE:
        alone = draw(st.sampled_from([False, False, False, True]))
        return message("m", agent=agent, conversation=conversation, no_coalesce=alone)
    return of_kind(kind, agent=agent, conversation=conversation)


class Line:
    """The naive model: one list, one counter of ids, one of batches, and who was told of what."""

    def __init__(self, soft: int, hard: int) -> None:
        self.soft, self.hard = soft, hard
        self.line: list[tuple[str, NewItem]] = []
        self.items = self.batches = 0
        self.told: list[tuple[object, ...]] = []
        self.last_reason: BlockedReason | None = None
        self.is_told = False

    @staticmethod
    def merges(item: NewItem) -> bool:
        return item.kind not in ("approval_result", "overlay_action")

    def enqueue(self, item: NewItem) -> str | None:
        self.items += 1
        name = f"q-{self.items}"
        if len(self.line) >= self.hard:
            self.told.append(("dropped", name, LIMIT, len(self.line)))
            return None
        if not self.line:
            self.is_told = False
        old = [entry for entry in self.line if self.merges(entry[1])]
        is_full = len(self.line) >= self.soft
        self.line.append((name, item))
        if is_full and self.merges(item) and old:
            self.line.remove(old[0])
            self.told.append(("dropped", old[0][0], LIMIT, len(self.line)))
        self.told.append(("enqueued", name, len(self.line)))
        return name

    def try_dequeue(self, reason: BlockedReason | None) -> list[str] | None:
        if reason is not None:
            if self.line and (reason != self.last_reason or not self.is_told):
                self.last_reason, self.is_told = reason, True
                self.told.append(("blocked", reason, len(self.line)))
            return None
        self.last_reason, self.is_told = None, False
        if not self.line:
            return None
        count, (_, head) = 1, self.line[0]
        if self.merges(head) and not head.no_coalesce:
            while count < len(self.line):
                _, other = self.line[count]
                same = (other.agent_id, other.conversation_id) == (head.agent_id, head.conversation_id)
                if not self.merges(other) or other.no_coalesce or not same:
                    break
                count += 1
        return self._leave(count)

    def consume(self, count: int) -> list[str] | None:
        return self._leave(count) if self.line and count > 0 else None

    def _leave(self, count: int) -> list[str]:
        self.batches += 1
        gone, self.line = [name for name, _ in self.line[:count]], self.line[count:]
        self._look_if_empty()
        self.told.append(("dequeued", f"batch-{self.batches}", len(self.line)))
        return gone

    def _look_if_empty(self) -> None:
        if not self.line:
            self.is_told = False

    def remove(self, name: str) -> bool:
        if name not in [known for known, _ in self.line]:
            return False
        self.line = [entry for entry in self.line if entry[0] != name]
        self._look_if_empty()
        self.told.append(("removed", name, len(self.line)))
        return True

    def clear(self, reason: ClearReason) -> None:
        self.told.append(("cleared", reason, len(self.line), [name for name, _ in self.line]))
        self.line, self.last_reason, self.is_told = [], None, False


def ids(batch: ItemBatch | None) -> list[str] | None:
    if batch is None:
        return None
    assert batch.merged_count == len(batch.items) > 0
    return [item.id for item in batch.items]


class RuntimeMachine(RuleBasedStateMachine):
    @initialize(soft=st.integers(1, 5), more=st.integers(0, 5))
    def open(self, soft: int, more: int) -> None:
        self.queue, self.line = ToldQueue(max_items=soft, hard_max_items=soft + more), Line(soft, soft + more)

    @rule(item=items())
    def enqueue(self, item: NewItem) -> None:
        queued = self.queue.enqueue(item)
        assert (queued.id if isinstance(queued, StoredItem) else None) == self.line.enqueue(item)

    @rule(many=st.lists(items(), min_size=2, max_size=8))
    def enqueue_many(self, many: list[NewItem]) -> None:
        for item in many:
            self.enqueue(item)

    @rule()
    def dequeue(self) -> None:
        assert ids(self.queue.try_dequeue(None)) == self.line.try_dequeue(None)

    @rule(reason=st.sampled_from([BlockedReason.STREAMING, BlockedReason.RUNTIME_BUSY]))
    def find_it_blocked(self, reason: BlockedReason) -> None:
        assert ids(self.queue.try_dequeue(reason)) == self.line.try_dequeue(reason)

    @rule(count=st.integers(-1, 6))
    def consume(self, count: int) -> None:
        assert ids(self.queue.consume_items(count)) == self.line.consume(count)

    @precondition(lambda self: not self.queue.is_empty)
    @rule(data=st.data())
    def remove_one_that_waits(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.queue.ids()))
        assert self.queue.remove(name) is not None
        assert self.line.remove(name)

    @rule(number=st.integers(1, 30))
    def remove_any(self, number: int) -> None:
        assert (self.queue.remove(f"q-{number}") is not None) == self.line.remove(f"q-{number}")

    @rule(reason=st.sampled_from(ClearReason))
    def clear(self, reason: ClearReason) -> None:
        self.queue.clear(reason)
        self.line.clear(reason)

    @rule()
    def become_idle(self) -> None:
        self.queue.reset_blocked_state()
        self.line.last_reason, self.line.is_told = None, False

    @invariant()
    def the_same_wait_in_the_same_order(self) -> None:
        assert self.queue.ids() == [name for name, _ in self.line.line]
        assert self.queue.length <= self.queue.limits.hard_max_items

    @invariant()
    def the_same_was_told(self) -> None:
        assert self.queue.told == self.line.told


TestRuntimeMachine = RuntimeMachine.TestCase
TestRuntimeMachine.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
