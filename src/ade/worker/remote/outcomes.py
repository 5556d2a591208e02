"""Reports outcomes to the server: each is sent until it is confirmed, and repeating a report is harmless."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from ade.accounts.model import NotAuthenticated
from ade.errors import AdeError, NotPermitted, StaleLease
from ade.failures import TaskError
from ade.logs import Log
from ade.tasks.outcomes import Failed, Outcome, Released, Succeeded, Withheld
from ade.worker.api.requests import LARGEST_DETAILS, CompletedRun, RunEnd, RunError
from ade.worker.backend import Ended
from ade.worker.failures import unwritable
from ade.worker.output_buffer import OutputBuffer
from ade.worker.remote.connection import ServerConnection, is_fault, is_passing
from ade.worker.run import Run

_MOST_FAULTS = 8
AT_ONCE = 8  # concurrent requests; more would only queue at the server, and batches would be smaller
_SMALL_RESULT = 32_768  # bytes; larger results have a request of their own
_LONGEST_TYPE, _LONGEST_MESSAGE, _LONGEST_DELAY_S = 200, 2_000, 31_536_000.0
_KINDS = frozenset(msgspec.structs.fields(RunError)[2].type.__args__)
log = Log("ade.worker")


class HttpCompleter:
    """Keeps an outcome until the server has confirmed it: a lost response is requested again, never guessed."""

    def __init__(self, reach: ServerConnection, outputs: OutputBuffer) -> None:
        self._reach = reach
        self._client = reach.client
        self._outputs = outputs

    async def report_all(self, batch: Sequence[Ended]) -> list[str]:
        """Report outcomes until they are confirmed, successes together. Returns the tasks returned to the queue."""
        small = [
            (run, outcome)
            for run, outcome in batch
            if isinstance(outcome, Succeeded) and len(outcome.result) <= _SMALL_RESULT
        ]
        settled = await self._report_together(small) if len(small) > 1 else set()
        rest = [(run, outcome) for run, outcome in batch if run.id not in settled]
        released = await asyncio.gather(*(self.report(run, outcome) for run, outcome in rest))
        return [run.task.id for (run, _), is_released in zip(rest, released, strict=True) if is_released]

    async def _report_together(self, batch: Sequence[tuple[Run, Succeeded]]) -> set[str]:
        """Report results in one request. Returns the runs that are settled; the others are then reported one by one."""
        if self._outputs:
            await self._outputs.flush()
        runs = [CompletedRun(run_id=run.id, task_id=run.task.id, result=outcome.result) for run, outcome in batch]
        try:
            reports = (await self._client.complete_runs(runs=runs)).items
        except AdeError as error:
            log.debug("report.not_together", error=str(error), runs=len(runs))
            return set()
        for report in reports:
            if report.code == StaleLease.code:
                log.warning("task.result_thrown_away", task_id=report.task_id, reason=report.error)
        return {report.run_id for report in reports if report.code in ("", StaleLease.code)}

    async def report(self, run: Run, outcome: Outcome) -> bool:
        """Report the outcome until it is confirmed. Returns whether the task was returned to the queue."""
        about: dict[str, Any] = {"task_id": run.task.id, "attempt": run.task.attempt, "worker": run.task.worker_id}
        try:
            return await self._told(run, outcome, about)
        except StaleLease as error:
            log.warning("task.result_thrown_away", **about, reason=str(error))
        except AdeError as error:
            log.error("task.not_written", **about, code=error.code, reason=str(error))
        return False

    async def _told(self, run: Run, outcome: Outcome, about: dict[str, Any]) -> bool:
        """Report the outcome. One that the server rejects fails only its own task."""
        if isinstance(outcome, Withheld):  # the server itself has ended the run
            return False
        try:
            end = await self._until_answered(run, outcome, about)
        except StaleLease:
            raise
        except AdeError as error:
            if not isinstance(outcome, Succeeded | Failed):
                raise
            log.warning("report.refused", **about, code=error.code, error=str(error))
            end = await self._until_answered(run, unwritable(f"{error.code}: {error.detail}"), about)
        tell = log.debug if isinstance(outcome, Succeeded) else log.info
        tell("task.handed_in", **about, status=end.status)
        return isinstance(outcome, Released)

    async def _until_answered(self, run: Run, outcome: Outcome, about: dict[str, Any]) -> RunEnd:
        times = 0
        while True:
            if self._outputs:
                await self._outputs.flush()
            try:
                return await self._say(run, outcome)
            except AdeError as error:
                if not _may_help(error, times):
                    raise
                pause = self._reach.pause(times)
                log.warning("report.repeated", **about, error=str(error), pause_s=round(pause, 2))
            times += 1
            await asyncio.sleep(pause)

    async def _say(self, run: Run, outcome: Outcome) -> RunEnd:
        client, task_id = self._client, run.task.id
        if isinstance(outcome, Succeeded):
            return await client.complete_run(run.id, task_id=task_id, result=outcome.result)
        if isinstance(outcome, Failed):
            after = None if outcome.retry_after_ms is None else min(outcome.retry_after_ms / 1000, _LONGEST_DELAY_S)
            return await client.fail_run(run.id, task_id=task_id, error=_error(outcome.error), retry_after_s=after)
        reason = outcome.reason if isinstance(outcome, Released) else "it could not begin"
        return await client.release_run(run.id, task_id=task_id, reason=reason[:_LONGEST_MESSAGE])


def _may_help(error: AdeError, times: int) -> bool:
    """Whether to retry the report. A token can regain its permissions; the outcome cannot be reproduced."""
    if isinstance(error, NotAuthenticated | NotPermitted) or is_passing(error):
        return True
    return is_fault(error) and times < _MOST_FAULTS  # after that, this outcome may be what the server fails on


def _error(error: TaskError) -> RunError:
    """Convert an error for the server: kinds that only ADE can assign become `raised`."""
    kind: Any = error.kind.value if error.kind.value in _KINDS else "raised"
    details = error.details
    if details is not None and len(msgspec.json.encode(details)) > LARGEST_DETAILS:
        details = {"cut": "the details were too large to be handed in"}
    return RunError(
        type=error.type[:_LONGEST_TYPE] or "Error",
        message=error.message[:_LONGEST_MESSAGE],
        kind=kind,
        retryable=error.retryable,
        details=details,
    )
