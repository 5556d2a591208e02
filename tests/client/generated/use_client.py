"""Uses the client that openapi-python-client generates: `use_client.py URL TOKEN REVIEWER_TOKEN`."""

import sys

from ade_api import AuthenticatedClient
from ade_api.api.approvals import get_approval, list_approvals, respond_to_approval
from ade_api.api.insight import list_events
from ade_api.api.tasks import cancel_task, create_task, get_task, list_tasks
from ade_api.models import (
    AnswerApproval,
    ApprovalView,
    Cancel,
    Decision,
    EventPage,
    NewTask,
    NewTaskArgsType0,
    PendingApprovalPage,
    Problem,
    Status,
    Task,
    TaskPage,
    Voted,
)
from ade_api.types import UNSET, Unset


def create_and_read(client: AuthenticatedClient) -> None:
    """A task is read with the fields that it was created with."""
    args = NewTaskArgsType0.from_dict({"name": "Ada", "more": {"deep": [1, None]}})
    body = NewTask(name="greet", args=args, ticket_ref="OPS-7", timeout_ms=1_500)
    created = create_task.sync(client=client, body=body, idempotency_key="generated-1")
    assert isinstance(created, Task), created
    again = create_task.sync(client=client, body=body, idempotency_key="generated-1")
    assert isinstance(again, Task)
    read = get_task.sync(created.id, client=client)
    assert isinstance(read, Task)
    assert read.id == again.id == created.id
    assert read.status is Status.PENDING
    assert (read.ticket_ref, read.timeout_ms, read.attempt) == ("OPS-7", 1_500, 0)
    assert read.args == {"name": "Ada", "more": {"deep": [1, None]}}
    assert read.created_at.tzinfo is not None


def list_page_by_page(client: AuthenticatedClient) -> None:
    """Filters and cursors lead through all matching tasks, once each."""
    for number in range(5):
        made = create_task.sync(client=client, body=NewTask(name="greet", tags=["paged", f"n{number}"]))
        assert isinstance(made, Task)
    found: list[str] = []
    cursor: str | Unset = UNSET
    while True:
        page = list_tasks.sync(client=client, tag="paged", status=[Status.PENDING], limit=2, cursor=cursor)
        assert isinstance(page, TaskPage), page
        found += [task.id for task in page.items]
        if isinstance(page.next_, Unset):
            break
        cursor = page.next_
    assert len(found) == len(set(found)) == 5
    canceled = cancel_task.sync(found[0], client=client, body=Cancel(reason="enough"))
    assert isinstance(canceled, Task)
    assert (canceled.status, canceled.reason) == (Status.CANCELLED, "enough")


def vote(client: AuthenticatedClient, reviewer: AuthenticatedClient) -> None:
    """A reviewer finds what waits, looks at it, and approves it."""
    task = create_task.sync(client=client, body=NewTask(name="pay"))
    assert isinstance(task, Task)
    waiting = list_approvals.sync(client=reviewer, mine=True)
    assert isinstance(waiting, PendingApprovalPage), waiting
    [pending] = [each for each in waiting.items if each.task_id == task.id]
    shown = get_approval.sync(task.id, client=reviewer)
    assert isinstance(shown, ApprovalView)
    assert shown.review.gates[-1].digest == pending.digest
    body = AnswerApproval(decision=Decision.APPROVE, approval=pending.approval, digest=pending.digest)
    voted = respond_to_approval.sync(task.id, client=reviewer, body=body)
    assert isinstance(voted, Voted), voted
    assert (voted.task.status, voted.missing) == (Status.PENDING, [])


def read_events(client: AuthenticatedClient) -> None:
    """Payloads are free-form, and times in them are text."""
    page = list_events.sync(client=client, after=0, type_=["task.cancelled"])
    assert isinstance(page, EventPage), page
    [event] = page.items
    assert event.type_ == "task.cancelled"
    assert event.payload.to_dict()["reason"] == "enough"


def errors_are_typed(client: AuthenticatedClient) -> None:
    """A problem is a value with a code, whatever the status."""
    missing = get_task.sync("01a1ee05-1057-708b-8c02-eeabbab879a3", client=client)
    assert isinstance(missing, Problem)
    assert (missing.status, missing.code) == (404, "unknown_task")
    refused = create_task.sync(client=client, body=NewTask(name="greet", max_attempts=0))
    assert isinstance(refused, Problem)
    assert refused.status == 422
    unknown = get_task.sync("x", client=AuthenticatedClient(client._base_url, "ade_wrong"))
    assert isinstance(unknown, Problem)
    assert (unknown.status, unknown.code) == (401, "not_authenticated")


if __name__ == "__main__":
    url, token, reviewer_token = sys.argv[1:]
    author, other = AuthenticatedClient(url, token), AuthenticatedClient(url, reviewer_token)
    create_and_read(author)
    list_page_by_page(author)
    vote(author, other)
    read_events(author)
    errors_are_typed(author)
    print("all is well")
