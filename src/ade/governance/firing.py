"""What schedules bring meets the guard like everything else that comes in."""

from collections.abc import Sequence

from ade.core.approvals.rulebook import passes
from ade.core.records import Task
from ade.governance.rulebook import load
from ade.ports import Stores
from ade.queue.enqueue import keep
from ade.queue.payloads import Payloads


async def keep_guarded(stores: Stores, payloads: Payloads, tasks: Sequence[Task]) -> list[Task]:
    """Store admitted tasks that the guard lets through, or holds. Raises Denied, with none of them stored."""
    rulebook = await load(stores)
    if all(passes(task, rulebook) for task in tasks):
        return await keep(stores, payloads, tasks)
    # Most programs have no such tasks, and do without all that these load.
    from ade.governance.approvals.admitting import admitted
    from ade.governance.approvals.submitting import follow_up

    held = await admitted(stores, payloads, tasks, rulebook)
    stored = await keep(stores, payloads, held)
    await follow_up(stores, payloads, stored)
    return stored
