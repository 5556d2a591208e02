"""A reviewer mends a task himself, or puts off answering."""

from msgspec import Raw, structs

from ade.core.approvals.records import Decision
from ade.core.approvals.subjects import digest_at
from ade.core.approvals.voting import Ballot, gate_for
from ade.core.documents import DocumentWrite
from ade.core.errors import InvalidTask
from ade.core.records import Task
from ade.governance.approvals.submitting import submit
from ade.governance.approvals.voting import vote
from ade.ports import Stores
from ade.queue.decisions import get
from ade.queue.payloads import Payloads
from ade.queue.tasks import any_version, edit

SNOOZE = "snooze"
LONGEST_SNOOZE_MS = 7 * 86_400_000


async def amend(stores: Stores, payloads: Payloads, task_id: str, ballot: Ballot, **fields: object) -> Task:
    """Edit a task that waits for people, and put it before them again.

    It is another task then: whoever amends it has a hand in it, and others must answer. Should the caller die half-way
    it is a draft that anybody can submit. Raises what `vote` and `edit` do.
    """
    if not fields:
        raise InvalidTask(
            "say what shall be different, or approve it as it is", advice="`ade approvals approve` does the latter"
        )
    task = await get(stores, task_id)
    gate = gate_for(task)
    if digest_at(structs.replace(task, **fields), gate) == digest_at(task, gate):
        raise InvalidTask("nothing that people are asked about would be different; say what shall be")
    asked = structs.replace(ballot, decision=Decision.REQUEST_CHANGES, reason=ballot.reason or "amended")
    await vote(stores, task_id, asked)
    await edit(stores, payloads, task_id, actor=ballot.voter, check=any_version, **fields)
    return await submit(stores, payloads, task_id, actor=ballot.voter)


async def snooze(stores: Stores, task_id: str, account: str, until: int) -> None:
    """Leave a task out of somebody's inbox until then; it can be answered all the same. Raises NoGate, InvalidTask."""
    now = stores.clock.now()
    if not now < until <= now + LONGEST_SNOOZE_MS:
        raise InvalidTask("an answer can be put off for at most seven days")
    gate = gate_for(await get(stores, task_id))
    body = Raw(f'{{"until":{until}}}'.encode())
    put_off = DocumentWrite(kind=SNOOZE, id=_place(account, gate.id), body=body, seen=None, expires_at=until)
    await stores.documents.write([put_off])


async def snoozed(stores: Stores, account: str) -> frozenset[str]:
    """The gates that somebody has put off for now."""
    head = _place(account, "")
    found = await stores.documents.list_documents(SNOOZE)
    return frozenset(each.id.removeprefix(head) for each in found if each.id.startswith(head))


def _place(account: str, gate_id: str) -> str:
    return f"{account} {gate_id}"
