"""Actions of a task handle beyond enqueuing and results: explain, submit, vote, start, and roll back."""

from typing import TYPE_CHECKING

from ade.approvals.model import Decision
from ade.approvals.rollback import roll_back
from ade.approvals.service import start, vote
from ade.approvals.submission import submit
from ade.approvals.votes import VoteRequest
from ade.tasks.explain import explain
from ade.tasks.model import Task
from ade.tasks.reasons import Explanation

if TYPE_CHECKING:
    from ade.app.ade import Ade


class TaskActions:
    """Separate from `TaskHandle`, so that programs that only enqueue load neither approvals nor `explain`."""

    def __init__(self, app: "Ade", task_id: str) -> None:
        self._app = app
        self._id = task_id

    async def explain(self) -> Explanation:
        """Explain why the task is not running."""
        return await explain((await self._app.open()).stores, self._id)

    async def submit(self, by: str | None) -> Task:
        """Submit a draft for approval."""
        opened = await self._app.open()
        return await submit(opened.stores, opened.payloads, self._id, actor=by)

    async def vote(self, decision: Decision, by: str, digest: str, reason: str) -> Task:
        """Record the vote of a reviewer on what the digest stands for."""
        ballot = VoteRequest(voter=by, decision=decision, digest=digest, reason=reason, via="app")
        return await vote((await self._app.open()).stores, self._id, ballot)

    async def start(self, by: str) -> Task:
        """Start an approved task that waits for a manual start."""
        return await start((await self._app.open()).stores, self._id, actor=by)

    async def roll_back(self, by: str | None) -> Task:
        """Return the new task that undoes this one."""
        opened = await self._app.open()
        return await roll_back(opened.stores, opened.payloads, self._id, actor=by)
