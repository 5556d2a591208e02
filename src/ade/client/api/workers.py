"""Calls of the section `workers`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ade.calls.call import Call
    from ade.core.web.answers import Page
    from ade.core.web.forms.workers import NewDefinition
    from ade.insight.workers import WorkerView


class WorkersCalls(Section):
    def list_workers(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[WorkerView]]:
        """Workers and how they are doing."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.workers import ListWorkers
        from ade.insight.workers import WorkerView

        query = ListWorkers(cursor=cursor, limit=limit)
        return self._call("list_workers", Page[WorkerView], query=query)

    def get_worker(self, worker_id: str) -> Call[WorkerView]:
        """One worker."""
        from ade.insight.workers import WorkerView

        return self._call("get_worker", WorkerView, worker_id)

    def register_worker(
        self, worker_id: str, *, definitions: Sequence[NewDefinition] = (), queues: Sequence[str] = (),
        capabilities: Sequence[str] = (), concurrency: int = 1, agent: str | None = None, hostname: str | None = None,
        pid: int = 0, version: str = "", draining: bool = False, ttl: float = 60.0,
    ) -> Call[WorkerView]:
        """Say what a worker is and can run."""
        from ade.core.web.forms.workers import RegisterWorker
        from ade.insight.workers import WorkerView

        body = RegisterWorker(
            definitions=list(definitions), queues=list(queues), capabilities=list(capabilities),
            concurrency=concurrency, agent=agent, hostname=hostname, pid=pid, version=version, draining=draining,
            ttl=ttl,
        )
        return self._call("register_worker", WorkerView, worker_id, body=body)

    def deregister_worker(self, worker_id: str) -> Call[None]:
        """Forget a worker that has handed all back."""
        return self._call("deregister_worker", type(None), worker_id)
