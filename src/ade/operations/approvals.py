"""Approvals: what waits for people, all about one of them, and what people say and put off."""

from ade.core.approvals.records import Gate
from ade.core.approvals.voting import no_such_gate
from ade.core.records import Task
from ade.core.web.forms.approvals import GetApprovalStats, ListApprovals, NewComment, SnoozeApproval
from ade.governance.approvals import amending, voting
from ade.governance.approvals.situation import load_people
from ade.governance.directory.users import get_user
from ade.insight import approvals as insight
from ade.insight.approval_stats import USUAL_WINDOW_MS, ApprovalStats, approval_stats
from ade.insight.approval_views import ApprovalView, Snoozed, view_approval
from ade.insight.approvals import InboxItem, UserStats
from ade.insight.gates import gate_to_answer
from ade.operations.acting import account_id, acting, voter
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut
from ade.operations.task_access import check_id
from ade.queue.tasks import get


async def list_approvals(office: Office, asked: Asked, query: ListApprovals) -> Page[InboxItem]:
    """The most urgent first. What somebody has put off is left out of what he may answer."""
    account, mine = acting(asked), query.mine
    if mine is None:
        mine = (await load_people(office.stores)).directory.get(account) is not None
    items = await insight.inbox(office.stores, account) if mine else await insight.waiting(office.stores)
    return cut("approvals", query, items)


async def get_approval_stats(office: Office, asked: Asked, query: GetApprovalStats) -> ApprovalStats:
    window_ms = USUAL_WINDOW_MS if query.over is None else round(query.over * 1000)
    return await approval_stats(office.stores, window_ms)


async def get_account_approval_stats(office: Office, asked: Asked, account: str) -> UserStats:
    """Raises UnknownAccount: that somebody who never was has answered nothing is no answer."""
    return await insight.user_stats(office.stores, (await get_user(office.stores, account_id(account))).id)


async def get_approval(office: Office, asked: Asked, task_id: str) -> ApprovalView:
    """Large arguments are shown whole: nobody approves a reference."""
    check_id(task_id)
    task = await get(office.stores, task_id)
    people, now = await load_people(office.stores), office.stores.clock.now()
    found = view_approval(task, await office.payloads.load(task.args), people, now=now)
    if found is None:
        raise no_such_gate(task)
    return found


async def comment_on_approval(office: Office, asked: Asked, task_id: str, body: NewComment) -> Task:
    """No vote, so that programs may do it too."""
    check_id(task_id)
    return await voting.comment(office.stores, task_id, body.text, actor=acting(asked))


async def snooze_approval(office: Office, asked: Asked, task_id: str, body: SnoozeApproval) -> Snoozed:
    """It can be answered all the same."""
    account = voter(asked)
    check_id(task_id)
    until = office.stores.clock.now() + round(body.seconds * 1000)
    await amending.snooze(office.stores, task_id, account, until)
    return Snoozed(task_id=task_id, account=account, until=until)


async def asked_gate(office: Office, task_id: str, approval: str | None) -> tuple[Task, Gate]:
    """The task, and the gate of this id; without one the newest that waits. Raises UnknownTask,
    UnknownApproval and NoGate."""
    check_id(task_id)
    task = await get(office.stores, task_id)
    if approval is None:
        gate = gate_to_answer(task)
    else:
        named, _, number = approval.rpartition(".")
        gate = gate_to_answer(task, number) if named == task_id and number else None
    if gate is None:
        raise no_such_gate(task, approval)
    return task, gate
