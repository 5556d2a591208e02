"""Before tasks fail for good: what undoes them is stored first."""

from collections.abc import Sequence

from ade.core.change import Change
from ade.core.lifecycle import Status
from ade.ports import Stores
from ade.queue.payloads import Payloads


async def prepare_rollbacks(stores: Stores, payloads: Payloads, changes: Sequence[Change]) -> None:
    """For those of the changes that ask for it."""
    if any(change.before.rollback is not None and change.after.status is Status.FAILED for change in changes):
        from ade.governance.approvals import rolling_back  # most workers have no such tasks

        await rolling_back.prepare_rollbacks(stores, payloads, changes)
