"""Tasks whose dependencies did not complete get their answer; theirs may break further tasks, until all are settled."""

from ade.core.errors import StaleWrite
from ade.core.task import break_chain
from ade.ports import DONE, Stores

_MAX_ROUNDS = 1000  # a chain settles one link per round; what is left is for the next sweep


async def settle_broken(stores: Stores, limit: int = 200) -> int:
    """Cancel or fail what waits in vain, as each task asked for. Answers how many were settled."""
    settled = 0
    for _ in range(_MAX_ROUNDS):
        broken = (await stores.sweeps.ripe(limit)).broken
        if not broken:
            break
        now = stores.clock.now()
        changes = [break_chain(task, failed_ids=failed, now=now) for task, failed in broken]
        answers = await stores.tasks.commit_each(changes)
        written = sum(not isinstance(answer, StaleWrite) for answer in answers)
        if not written:
            break  # others are at it
        settled += written
    if settled:
        stores.hints.ring(DONE)
    return settled
