"""What time does to tasks that wait: reminders escalate, approvals expire, previews that nobody finished go on."""

from ade.core.approvals.deciding import tend
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.governance.approvals.rolling_back import prepare_rollbacks
from ade.governance.approvals.situation import load_people
from ade.governance.approvals.submitting import tend_submitted
from ade.ports import Stores, TaskQuery
from ade.queue.decisions import ring_for
from ade.queue.payloads import Payloads

_PAGE = 200
_WAITING = frozenset({Status.REVIEWING, Status.APPROVED, Status.SUBMITTED})


async def tend_reviews(stores: Stores, payloads: Payloads) -> int:
    """May run anywhere, any time, twice at once: guards decide, so that each step is taken once. Answers how many."""
    people, moved, after = None, 0, None
    while True:
        query = TaskQuery(statuses=_WAITING, oldest_first=True, after=after, limit=_PAGE)
        page = await stores.tasks.find(query)
        waiting = [task for task in page.tasks if task.status is not Status.SUBMITTED]
        if waiting:
            people = people or await load_people(stores)
            now = stores.clock.now()
            changes = [change for task in waiting if (change := tend(task, people, now=now)) is not None]
            await prepare_rollbacks(stores, payloads, changes)
            answers = await stores.tasks.commit_each(changes) if changes else []
            written = [change for change, answer in zip(changes, answers, strict=True) if answer is None]
            if written:
                ring_for(stores, *written)
            moved += len(written)
        moved += await tend_submitted(stores, payloads, _submitted(page.tasks))
        if page.next is None:
            return moved
        after = page.next


def _submitted(tasks: list[Task]) -> list[Task]:
    return [task for task in tasks if task.status is Status.SUBMITTED]
