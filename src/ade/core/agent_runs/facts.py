"""The facts of one run as they come in, whatever program tells them. Bounded, however much it tells."""

from collections import OrderedDict

from msgspec.structs import replace

from ade.core.agent_runs.events import Complained, Identified, Retrying, RunEvent, Said, Spent, ToolCalled
from ade.core.agent_runs.failures import RunFailure
from ade.core.agent_runs.json_fields import LONGEST_ID
from ade.core.agent_runs.lines import LONGEST_TEXT, Clipped, clipped

MOST_TOOL_CALLS = 1_000  # kept in full; all are counted
LONGEST_ARGUMENTS = 2_000
LONGEST_MESSAGE = 10_000
_REMEMBERED = 2_000  # ids by which things told twice are known


class RunFacts:
    """Written by a protocol, read by the judgement. What is noted is also told as an event."""

    def __init__(self, longest_text: int = LONGEST_TEXT) -> None:
        self._longest_text = longest_text
        self._events: list[RunEvent] = []
        self._seen_calls: OrderedDict[str, None] = OrderedDict()
        self._steps: OrderedDict[str, Spent] = OrderedDict()
        self.identity = Identified()
        self.spent = Spent()
        self.duration_ms: int | None = None
        self.tool_calls: list[ToolCalled] = []
        self.tool_call_count = 0
        self.retries = 0
        self.long_lines = 0  # that could not be read
        self.deferred: ToolCalled | None = None
        self.result: str | None = None
        self.is_concluded = False  # a record said how the run ended
        self.is_error = False  # and that record, or one before it that counts, was an error
        self.complaint: str | None = None  # the last one that was not got over
        self.failure: RunFailure | None = None  # where the program names the kind
        self.status: int | None = None  # of the provider's last refusal, if nothing went well since
        self.retry_at: int | None = None

    def told(self) -> list[RunEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def identify(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        conversation_id: str | None = None,
        model: str | None = None,
    ) -> None:
        """Later names replace earlier ones; what is not named stays."""
        known = self.identity
        new = Identified(
            session_id=session_id or known.session_id,
            agent_id=agent_id or known.agent_id,
            conversation_id=conversation_id or known.conversation_id,
            model=model or known.model,
        )
        if new != known:
            self.identity = new
            self._events.append(new)

    def say(self, text: str, *, is_part: bool = False) -> None:
        self._events.append(Said(text, is_part))

    def goes_well(self) -> None:
        """The provider has answered: what it refused before is got over, unless that ended the run."""
        self.status = None
        if not self.is_error:
            self.complaint = self.failure = None

    def call_tool(self, call_id: str | None, name: str | None, arguments: str) -> None:
        """Each id once, whoever tells of it first. A call without an id or a name is none."""
        if not call_id or not name or call_id in self._seen_calls:
            return
        self._seen_calls[call_id] = None
        _forget_oldest(self._seen_calls)
        self.tool_call_count += 1
        call = ToolCalled(id=call_id, name=name[:LONGEST_ID], arguments=clipped(arguments, LONGEST_ARGUMENTS))
        self._events.append(call)
        if len(self.tool_calls) < MOST_TOOL_CALLS:
            self.tool_calls.append(call)

    def spend_step(self, step_id: str, step: Spent) -> None:
        """What one step has cost so far; told again, the later figures count."""
        before = self._steps.get(step_id, Spent())
        self._steps[step_id] = step
        _forget_oldest(self._steps)
        self._tell_spent(_sum(self.spent, step, before))

    def spend_total(self, total: Spent) -> None:
        """What the whole run has cost, by the program's own count. It replaces what was added up; gaps do not."""
        new = {key: value for key in Spent.__struct_fields__ if (value := getattr(total, key)) is not None}
        self._tell_spent(replace(self.spent, **new))

    def _tell_spent(self, spent: Spent) -> None:
        if spent != self.spent:
            self.spent = spent
            self._events.append(spent)

    def retry(self, notice: Retrying, *, status: int | None = None) -> None:
        self.retries += 1
        self.status = status if status is not None else self.status
        self._events.append(notice)

    def complain(self, message: str, *, failure: RunFailure | None = None, status: int | None = None) -> None:
        """An error that was told; the last one is kept."""
        self.complaint = clipped(message, LONGEST_MESSAGE)
        self.failure = failure or self.failure
        self.status = status if status is not None else self.status
        self._events.append(Complained(self.complaint))

    def conclude(self, result: str | Clipped | None, *, is_error: bool) -> None:
        """The record that ends a run; if there are several, the last one counts."""
        self.is_concluded, self.is_error = True, is_error
        if result is not None:
            self.result = result.text if isinstance(result, Clipped) else clipped(result, self._longest_text)

    def gather(self) -> Clipped:
        """Room for a result that comes in pieces."""
        return Clipped(self._longest_text)


def _forget_oldest(remembered: "OrderedDict[str, None] | OrderedDict[str, Spent]") -> None:
    if len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)


def _sum(total: Spent, step: Spent, before: Spent) -> Spent:
    return Spent(**{key: _added(total, step, before, key) for key in Spent.__struct_fields__})


def _added(total: Spent, step: Spent, before: Spent, key: str) -> int | None:
    known: int | None = getattr(total, key)
    new: int | None = getattr(step, key)
    old: int | None = getattr(before, key)
    return known if new is None else (known or 0) + new - (old or 0)
