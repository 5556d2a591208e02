"""Before a run begins: whether its approval is still good, and how it waits where it is not."""

from msgspec import Raw, Struct, structs

from ade.core.approvals.deciding import ANOTHER, not_good, risk_record
from ade.core.approvals.opening import Demand, People, open_gate, review_of
from ade.core.approvals.people import Directory
from ade.core.approvals.records import AFTER_THE_FACT, Gate, GateState, closed_review
from ade.core.approvals.refusals import InvalidSubject
from ade.core.approvals.subjects import digest_at, digest_for, read_preview
from ade.core.lifecycle import Status
from ade.core.outcome import Withheld
from ade.core.records import Task

STALE = "what it would change has changed since the preview"


class Clearance(Struct, frozen=True):
    """Whether people have let this task run, as it is. `reason` tells why not; it is empty too if nobody was asked."""

    is_good: bool
    reason: str = ""


def clearance_of(task: Task, directory: Directory, *, now: int, policy: str | None = None) -> Clearance:
    """The digest is computed again from the record that would run; `policy` is what the guard demands now. Raises
    InvalidSubject."""
    gate = whole_gate(task)
    if gate is None:
        return Clearance(False)
    if gate.generation != task.generation:
        return Clearance(False, "it was approved once, and has run")
    if is_bypassed(task, gate):
        return Clearance(True)
    if policy is not None and policy not in gate.policies:
        return Clearance(False, f"the policy {policy} is demanded by now, and was not met")
    why = not_good(task, gate, directory, now=now, has_begun=has_begun(task, gate))
    return Clearance(not why, why)


def is_bypassed(task: Task, gate: Gate) -> bool:
    """Whether the glass was broken for the task exactly as it is, and nobody has said since that this was wrong."""
    return _stays_bypassed(task, gate) and gate.digest == digest_at(task, gate)


def _stays_bypassed(task: Task, gate: Gate) -> bool:
    afterwards = [each for each in review_of(task).gates if (each.step, each.digest) == (AFTER_THE_FACT, gate.digest)]
    return gate.is_bypassed and all(each.state is not GateState.REJECTED for each in afterwards)


def whole_gate(task: Task) -> Gate | None:
    """The newest gate for the task as a whole."""
    gates = [gate for gate in review_of(task).gates if not gate.step]
    return gates[-1] if gates else None


def has_begun(task: Task, gate: Gate) -> bool:
    """Whether the task has run under this gate before: in an earlier attempt, or up to a step that had to wait."""
    gates = review_of(task).gates
    later = gates[[each.id for each in gates].index(gate.id) + 1 :]
    waited = any(each.step and each.step != AFTER_THE_FACT for each in later)
    return waited or task.attempt > gate.after_attempt + 1


def has_changed(before: Raw | None, now: Raw) -> bool:
    """Whether a preview made now saw other versions than the one that was approved, or finds something wrong."""
    if before is None:
        return True
    seen = read_preview(now)
    return bool(seen.errors) or read_preview(before).versions != seen.versions


def wants_versions(preview: Raw | None) -> bool:
    """Whether the preview told in which state it saw its resources."""
    try:
        return preview is not None and bool(read_preview(preview).versions)
    except InvalidSubject:
        return True  # it cannot be compared, so it is not the same


def _over(reason: str) -> GateState:
    """What becomes of a gate that lets nothing pass any more; what was tampered with never passes by itself again."""
    return GateState.REVOKED if reason == ANOTHER else GateState.STALE


def previewed_anew(task: Task, reason: str, *, preview_id: str, now: int) -> Withheld:
    """Back to the preview: whatever was approved counts no more."""
    review = closed_review(review_of(task), _over(reason), now)
    fields = {
        "review": structs.replace(review, has_preview=True, preview_id=preview_id),
        "preview": None,
        "digest": None,
    }
    return Withheld(reason=reason, status=Status.SUBMITTED, fields=fields)


def assessed_anew(task: Task, reason: str, *, now: int) -> Withheld:
    """Back to where its risk is scored and its policy chosen: it may pass by itself, and that is on record."""
    review = closed_review(review_of(task), _over(reason), now)
    unseen = {"preview": None, "digest": None}
    fields = {"review": structs.replace(review, has_preview=False, preview_id=None), **unseen}
    return Withheld(reason=reason, status=Status.SUBMITTED, fields=fields)


def asked_anew(task: Task, demand: Demand, people: People, *, now: int) -> Withheld:
    """People are asked before it runs, or goes on."""
    stale = task
    if not demand.step:
        stale = structs.replace(task, review=closed_review(review_of(task), GateState.STALE, now))
    counted = structs.replace(stale, attempt=task.attempt - 1)  # the run that meets the gate does not count
    gate, events = open_gate(counted, demand, people, now=now)
    fields: dict[str, object] = {"review": review_of(stale).with_gate(gate, editors=())}
    if not demand.step:
        fields |= {"digest": gate.digest, "risk": risk_record(demand.risk, now)}
    return Withheld(reason=demand.reason or "approval is demanded", events=events, fields=fields)


def step_gate(task: Task, step: str, about: object) -> Gate | None:
    """The gate for exactly this step of a run."""
    for gate in reversed(review_of(task).gates):
        is_its_own = (gate.step, gate.generation) == (step, task.generation)
        if is_its_own and gate.digest == digest_for(task, gate.policy, gate.number, step, about):
            return gate
    return None


def may_go_on(task: Task, gate: Gate, directory: Directory, *, now: int) -> bool:
    """Whether people have let this step of a run pass, and would still do so."""
    if _stays_bypassed(task, gate):
        return True
    unlimited = structs.replace(task, review=structs.replace(review_of(task), not_after=None))  # it has begun long ago
    return not not_good(unlimited, gate, directory, now=now, has_begun=has_begun(task, gate))
