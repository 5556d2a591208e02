"""What somebody needs to see before he answers: the task itself, all that was said about it, and what is missing."""

from msgspec import Raw, Struct

from ade.core.approvals.opening import People
from ade.core.approvals.records import Gate, GateState
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.insight.approvals import TaskStats, task_stats
from ade.insight.gates import ReviewView, view_review


class ApprovalView(Struct, frozen=True, kw_only=True):
    task_id: str
    name: str
    status: Status
    version: int
    args: Raw  # those it would run with, however large
    review: ReviewView
    author: str | None = None
    description: str | None = None
    stats: TaskStats | None = None


class Voted(Struct, frozen=True, kw_only=True):
    """The task after an answer, how its approval stands, and whose answer is missing still."""

    task: Task
    approval: str  # the id of the gate
    state: GateState
    missing: list[str]


class Snoozed(Struct, frozen=True, kw_only=True):
    task_id: str
    account: str
    until: int


def view_approval(task: Task, args: Raw, people: People, *, now: int) -> ApprovalView | None:
    """None where nobody has to approve the task, as far as is known."""
    review = view_review(task, people, now=now)
    if review is None:
        return None
    return ApprovalView(
        task_id=task.id,
        name=task.name,
        status=task.status,
        version=task.version,
        args=args,
        review=review,
        author=task.author_id,
        description=task.description,
        stats=task_stats(task, people, now=now),
    )


def view_vote(task: Task, gate: Gate, people: People, *, now: int) -> Voted:
    """`gate` as it was when it was answered."""
    gates = () if task.review is None else task.review.gates
    standing = people.standing(next((each for each in gates if each.id == gate.id), gate), now)
    return Voted(task=task, approval=gate.id, state=standing.state, missing=list(standing.missing))
