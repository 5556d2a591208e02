"""The part of the seam that keeps documents: users, tokens, sessions, delegations, the rulebook, settings."""

from collections.abc import Sequence
from typing import Protocol

from ade.core.documents import Document, DocumentWrite
from ade.core.events import Event


class DocumentStore(Protocol):
    async def fetch(self, kind: str, ids: Sequence[str]) -> list[Document | None]:
        """Documents in the order asked; None for those that do not exist or have expired."""

    async def list_documents(self, kind: str) -> list[Document]:
        """All of a kind that have not expired, by id."""

    async def write(self, writes: Sequence[DocumentWrite], events: Sequence[Event] = ()) -> None:
        """Carry out all of these or none, in their order, enter the events that tell of it in the same write, and ring
        RULES unless all are quiet. The events are about no task: a task's id belongs into their payload.

        Raises StaleWrite when a document is not as it was seen, and then nothing is written. Without writes only the
        events are entered.
        """

    async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
        """Use up `times` of `count` starts in `period_ms` (GCRA, as for names and locks). 0 if so many were left; else
        in how many milliseconds they will be, and nothing was used up."""

    async def expire_documents(self, limit: int) -> int:
        """Remove documents that have expired, and rates nobody needs any more. Answers how many, `limit` at most."""
