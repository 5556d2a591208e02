"""What authors have spent of late: one document for each run, which expires when it no longer counts.

Nothing has to be added up under a lock, and nothing to be reset: what is there is what counts.
"""

import hashlib

import msgspec
from msgspec import Raw

from ade.core.agent_runs.budgets import Budget, left_of
from ade.core.agent_runs.events import Spent
from ade.core.documents import DocumentWrite
from ade.ports import Stores

_spent = msgspec.json.Decoder(Spent)


def kind_of(author: str) -> str:
    """The kind of the documents of an author; his name may be anything."""
    return f"spending-{hashlib.sha256(author.encode('utf-8', 'replace')).hexdigest()[:16]}"


class StoredPurse:
    """Every author has the same budget in each window that ends now."""

    def __init__(self, stores: Stores, budget: Budget, window_ms: int) -> None:
        self._stores = stores
        self._budget = budget
        self._window_ms = window_ms
        self._entered: dict[str, Spent] = {}

    async def budget_of(self, author: str, run_id: str) -> Budget | None:
        documents = await self._stores.documents.list_documents(kind_of(author))
        return left_of(self._budget, *(_spent.decode(each.body) for each in documents if each.id != run_id))

    async def enter(self, author: str, run_id: str, spent: Spent) -> None:
        """Only what is news is written."""
        if spent == Spent() or self._entered.get(run_id) == spent:
            return
        ends = self._stores.clock.now() + self._window_ms
        write = DocumentWrite(
            kind=kind_of(author),
            id=run_id,
            body=Raw(msgspec.json.encode(spent)),
            seen=None,
            expires_at=ends,
            is_quiet=True,
        )
        await self._stores.documents.write([write])
        self._entered = {run_id: spent} if len(self._entered) > 1_000 else {**self._entered, run_id: spent}
