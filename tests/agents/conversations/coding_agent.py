"""An agent that is fed turn by turn, and can be looked at."""

from collections.abc import Sequence
from typing import Any

from ade import Task, Unrecoverable
from ade.agents.conversations.agent_consumer import AgentConsumer, Enqueue
from tests.domain import TaskQuery, enqueue
from tests.worker.harness import Gate, Workshop

TALK = "talk"


class Coder:
    """An agent of the type `coder`: says what it was told, and counts its turns by session."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.gate: Gate | None = None
        self.broken = False
        self.is_forgetful = False  # it does not find the sessions it has made
        self.session_tokens: int | None = None  # what it says that its session has taken

    async def run(
        self,
        prompt: str,
        session_id: str | None = None,
        agent_id: str | None = None,
        conversation_id: str | None = None,
        model: str | None = None,
        workspace: str | None = None,
        session_tokens: int | None = None,
    ) -> dict[str, Any]:
        assert workspace is not None  # all turns share one
        given = {
            "session_id": session_id,
            "agent_id": agent_id,
            "conversation_id": conversation_id,
            "model": model,
            "session_tokens": session_tokens,
        }
        self.calls.append({"prompt": prompt} | {name: value for name, value in given.items() if value is not None})
        if self.gate is not None:
            await self.gate()
        if self.broken or (self.is_forgetful and session_id is not None):
            raise Unrecoverable("cannot")
        ids = {"session_id": session_id or "session-1", "agent_id": agent_id or "agent-1"}
        said = {"report": f"did: {prompt}", "subagent_type": "coder", **ids, "conversation_id": conversation_id}
        return said if self.session_tokens is None else {**said, "session_tokens": self.session_tokens}

    @staticmethod
    async def look_busy() -> None:
        """Another task."""

    @property
    def prompts(self) -> list[str]:
        return [call["prompt"] for call in self.calls]


def turns(
    shop: Workshop, way_in: Enqueue | None = None, *, profile_type: str = "coder", **options: Any
) -> AgentConsumer:
    async def plainly(tasks: Sequence[Task]) -> list[Task]:
        return await enqueue(shop.stores, shop.payloads, tasks)

    return AgentConsumer(shop.stores, way_in or plainly, profile_type, **options)


async def tasks_of(shop: Workshop) -> list[Task]:
    return (await shop.stores.tasks.find(TaskQuery(name="agent:coder", oldest_first=True))).tasks
