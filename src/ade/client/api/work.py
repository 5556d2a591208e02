"""Calls of the section `work`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from ade.client.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from msgspec import UnsetType

    from ade.calls.call import Call
    from ade.core.web.forms.work import OutputText, RunError
    from ade.core.web.remote_runs import Claimed, Renewed, RunEnd, RunHeld


class WorkCalls(Section):
    def claim_tasks(
        self, *, worker: str, names: list[str] | None = None, queues: list[str] | None = None,
        capabilities: list[str] | None = None, count: int = 1, lease_s: float = 60.0, wait: float = 0.0,
        request_id: str | None = None,
    ) -> Call[Claimed]:
        """Take tasks that are due; may wait for some."""
        from ade.core.web.forms.work import Claim
        from ade.core.web.remote_runs import Claimed

        body = Claim(
            worker=worker, names=names, queues=queues, capabilities=capabilities, count=count, lease_s=lease_s,
            wait=wait, request_id=request_id,
        )
        return self._call("claim_tasks", Claimed, body=body)

    def renew_runs(
        self, *, worker: str, runs: Mapping[str, str] | None = None, lease_s: float = 60.0, draining: bool = False,
    ) -> Call[Renewed]:
        """Keep the leases of runs, and learn which were lost."""
        from ade.core.web.forms.work import RenewRuns
        from ade.core.web.remote_runs import Renewed

        body = RenewRuns(worker=worker, runs=dict(runs or {}), lease_s=lease_s, draining=draining)
        return self._call("renew_runs", Renewed, body=body)

    def complete_run(self, run_id: str, *, task_id: str, result: Any = None) -> Call[RunEnd]:
        """Hand in a result."""
        from ade.core.web.forms.work import CompleteRun
        from ade.core.web.remote_runs import RunEnd

        body = CompleteRun(task_id=task_id, result=result)
        return self._call("complete_run", RunEnd, run_id, body=body)

    def fail_run(
        self, run_id: str, *, task_id: str, error: RunError, retry_after_s: float | None = None,
    ) -> Call[RunEnd]:
        """Report a failure."""
        from ade.core.web.forms.work import FailRun
        from ade.core.web.remote_runs import RunEnd

        body = FailRun(task_id=task_id, error=error, retry_after_s=retry_after_s)
        return self._call("fail_run", RunEnd, run_id, body=body)

    def hold_run(
        self, run_id: str, *, task_id: str, step: str, about: Any = None, policies: Sequence[str] = (),
        reason: str = "", is_tool: bool = False, judged: dict[str, Any] | UnsetType = UNSET,
    ) -> Call[RunHeld]:
        """Let the task wait for people."""
        from ade.core.web.forms.work import HoldRun
        from ade.core.web.remote_runs import RunHeld

        body = HoldRun(
            task_id=task_id, step=step, about=about, policies=list(policies), reason=reason, is_tool=is_tool,
            judged=judged,
        )
        return self._call("hold_run", RunHeld, run_id, body=body)

    def release_run(self, run_id: str, *, task_id: str, reason: str = "handed back by its worker") -> Call[RunEnd]:
        """Hand a task back unfinished."""
        from ade.core.web.forms.work import ReleaseRun
        from ade.core.web.remote_runs import RunEnd

        body = ReleaseRun(task_id=task_id, reason=reason)
        return self._call("release_run", RunEnd, run_id, body=body)

    def report_progress(self, run_id: str, *, task_id: str, progress: Any) -> Call[None]:
        """Keep the newest progress."""
        from ade.core.web.forms.work import Progress

        body = Progress(task_id=task_id, progress=progress)
        return self._call("report_progress", type(None), run_id, body=body)

    def append_output(self, run_id: str, *, task_id: str, lines: list[OutputText]) -> Call[None]:
        """Keep lines that the run has written."""
        from ade.core.web.forms.work import AppendOutput

        body = AppendOutput(task_id=task_id, lines=lines)
        return self._call("append_output", type(None), run_id, body=body)
