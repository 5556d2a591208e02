"""Calls: `work`, `workers`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from ade.client.transport import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from msgspec import UnsetType

    from ade.common.calls import Call
    from ade.server.pagination import Page
    from ade.tasks.options import NewDefinition
    from ade.worker.api.requests import (
        Claimed,
        CompletedRun,
        CompletionReport,
        OutputText,
        RemoteRunsRenewed,
        RunEnd,
        RunError,
        RunHold,
    )
    from ade.worker.views import WorkerView


class WorkersCalls(Section):
    """Methods of the client: `work`, `workers`."""

    def claim_tasks(
        self, *, worker: str, names: list[str] | None = None, queues: list[str] | None = None,
        capabilities: list[str] | None = None, count: int = 1, lease_s: float = 60.0, wait: float = 0.0,
        request_id: str | None = None,
    ) -> Call[Claimed]:
        """Take tasks that are due; may wait for some."""
        from ade.worker.api.requests import Claim, Claimed

        body = Claim(
            worker=worker, names=names, queues=queues, capabilities=capabilities, count=count, lease_s=lease_s,
            wait=wait, request_id=request_id,
        )
        return self._call("claim_tasks", Claimed, body=body)

    def renew_runs(
        self, *, worker: str, runs: Mapping[str, str] | None = None, lease_s: float = 60.0, draining: bool = False,
    ) -> Call[RemoteRunsRenewed]:
        """Keep the leases of runs, and learn which were lost."""
        from ade.worker.api.requests import RemoteRunsRenewed, RenewRuns

        body = RenewRuns(worker=worker, runs=dict(runs or {}), lease_s=lease_s, draining=draining)
        return self._call("renew_runs", RemoteRunsRenewed, body=body)

    def complete_run(self, run_id: str, *, task_id: str, result: Any = None) -> Call[RunEnd]:
        """Hand in a result."""
        from ade.worker.api.requests import CompleteRun, RunEnd

        body = CompleteRun(task_id=task_id, result=result)
        return self._call("complete_run", RunEnd, run_id, body=body)

    def complete_runs(self, *, runs: list[CompletedRun]) -> Call[Page[CompletionReport]]:
        """Report the results of several runs in one write."""
        from ade.server.pagination import Page
        from ade.worker.api.requests import CompleteRuns, CompletionReport

        body = CompleteRuns(runs=runs)
        return self._call("complete_runs", Page[CompletionReport], body=body)

    def fail_run(
        self, run_id: str, *, task_id: str, error: RunError, retry_after_s: float | None = None,
    ) -> Call[RunEnd]:
        """Report a failure."""
        from ade.worker.api.requests import FailRun, RunEnd

        body = FailRun(task_id=task_id, error=error, retry_after_s=retry_after_s)
        return self._call("fail_run", RunEnd, run_id, body=body)

    def hold_run(
        self, run_id: str, *, task_id: str, step: str, about: Any = None, policies: Sequence[str] = (),
        reason: str = "", is_tool: bool = False, judged: dict[str, Any] | UnsetType = UNSET, responses: bool = False,
    ) -> Call[RunHold]:
        """Let the task wait for people."""
        from ade.worker.api.requests import HoldRun, RunHold

        body = HoldRun(
            task_id=task_id, step=step, about=about, policies=list(policies), reason=reason, is_tool=is_tool,
            judged=judged, responses=responses,
        )
        return self._call("hold_run", RunHold, run_id, body=body)

    def release_run(self, run_id: str, *, task_id: str, reason: str = "handed back by its worker") -> Call[RunEnd]:
        """Hand a task back unfinished."""
        from ade.worker.api.requests import ReleaseRun, RunEnd

        body = ReleaseRun(task_id=task_id, reason=reason)
        return self._call("release_run", RunEnd, run_id, body=body)

    def report_progress(self, run_id: str, *, task_id: str, progress: Any) -> Call[None]:
        """Keep the newest progress."""
        from ade.worker.api.requests import Progress

        body = Progress(task_id=task_id, progress=progress)
        return self._call("report_progress", type(None), run_id, body=body)

    def append_output(self, run_id: str, *, task_id: str, lines: list[OutputText]) -> Call[None]:
        """Keep lines that the run has written."""
        from ade.worker.api.requests import AppendOutput

        body = AppendOutput(task_id=task_id, lines=lines)
        return self._call("append_output", type(None), run_id, body=body)

    def list_workers(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[WorkerView]]:
        """Workers and how they are doing."""
        from ade.server.pagination import Page
        from ade.worker.api.requests import ListWorkers
        from ade.worker.views import WorkerView

        query = ListWorkers(cursor=cursor, limit=limit)
        return self._call("list_workers", Page[WorkerView], query=query)

    def get_worker(self, worker_id: str) -> Call[WorkerView]:
        """One worker."""
        from ade.worker.views import WorkerView

        return self._call("get_worker", WorkerView, worker_id)

    def register_worker(
        self, worker_id: str, *, definitions: Sequence[NewDefinition] = (), queues: Sequence[str] = (),
        capabilities: Sequence[str] = (), concurrency: int = 1, agent: str | None = None, hostname: str | None = None,
        pid: int = 0, version: str = "", draining: bool = False, ttl: float = 60.0,
    ) -> Call[WorkerView]:
        """Say what a worker is and can run."""
        from ade.worker.api.requests import RegisterWorker
        from ade.worker.views import WorkerView

        body = RegisterWorker(
            definitions=list(definitions), queues=list(queues), capabilities=list(capabilities),
            concurrency=concurrency, agent=agent, hostname=hostname, pid=pid, version=version, draining=draining,
            ttl=ttl,
        )
        return self._call("register_worker", WorkerView, worker_id, body=body)

    def deregister_worker(self, worker_id: str) -> Call[None]:
        """Forget a worker that has handed all back."""
        return self._call("deregister_worker", type(None), worker_id)
