"""Approval checks of a worker: a task that needs approval starts only if exactly this task is approved."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import structs

from ade.accounts.model import SYSTEM
from ade.approvals.decisions import is_bypassed, is_resumed, whole_gate
from ade.approvals.digest import has_changed, wants_versions
from ade.approvals.guard import GuardOccasion
from ade.approvals.model import Review
from ade.approvals.repository import RulebookCache
from ade.approvals.rollback import NEEDLESS, is_needless
from ade.approvals.rulebook import passes
from ade.approvals.run_gates import (
    RunStep,
    check_before_run,
    check_on_stale_rules,
    check_tool_call,
    request_step_approval,
)
from ade.approvals.submission import admitted, follow_up, previewed
from ade.errors import StoreUnavailable
from ade.settings.runtime import RuntimeSettingsCache
from ade.stores.ports import Stores
from ade.tasks.admission import PREVIEW_SUFFIX, admit, is_rollback
from ade.tasks.decisions import is_overdue
from ade.tasks.enqueue import enqueue_plan
from ade.tasks.handlers import Handler, Registry
from ade.tasks.model import Task
from ade.tasks.outcomes import HoldResponse, Leave, Outcome, Released, Succeeded, Withheld
from ade.tasks.payloads import Payloads
from ade.worker.messages import CheckToolCall, RequestStepApproval
from ade.worker.run import Run


class PreviewRunner(Protocol):
    """Invokes handlers: a preview is created again before its task runs."""

    async def attempt(self, run: Run, handler: Handler) -> Outcome: ...


class ApprovalChecker:
    """Checks approvals before and during runs. A plain task costs only a look at the cached rulebook."""

    def __init__(
        self, stores: Stores, payloads: Payloads, registry: Registry, versions: Mapping[str, str] | None = None
    ) -> None:
        self._stores = stores
        self._payloads = payloads
        self._handlers = registry.by_name
        self._versions = versions or {}  # of the code of the handlers
        self._rules: RulebookCache | None = None
        self._runtime: RuntimeSettingsCache | None = None

    async def open(self) -> None:
        """Load the rules before the first run. Raises StoreUnavailable."""
        self._rules, self._runtime = RulebookCache(self._stores), RuntimeSettingsCache(self._stores)
        await self._rules.current()

    async def enqueue(self, tasks: Sequence[Task]) -> list[Task]:
        """Store the tasks that a run enqueues, after the guard has checked them."""
        assert self._rules is not None  # opened before the first run
        assert self._runtime is not None
        (rulebook, is_stale), (runtime, _) = await asyncio.gather(self._rules.latest(), self._runtime.latest())
        now = self._stores.clock.now()
        new = [admit(task, now=now) for task in runtime.limited(tasks)]
        if is_stale:
            for task in new:
                if not passes(task, rulebook):
                    check_on_stale_rules(task, rulebook, GuardOccasion.ENQUEUE, GuardOccasion.RUN)
            return await enqueue_plan(self._stores, self._payloads, new)
        held = await admitted(self._stores, self._payloads, new, rulebook)
        stored = await enqueue_plan(self._stores, self._payloads, held)
        await follow_up(self._stores, self._payloads, stored)
        return stored

    def check(self, run: Run, previews: PreviewRunner) -> Awaitable[Outcome | None] | None:
        """Return None if the run can start immediately; else an awaitable of None or of the outcome that replaces the
        run.
        """
        task, handler, rules = run.task, run.handler, self._rules
        if task.source == SYSTEM:
            return self._check_rollback(run, previews) if is_rollback(task) else None
        if handler is None or rules is None:
            return None
        is_late = is_overdue(task, self._stores.clock.now())
        if task.review is None and not handler.definition.has_preview and not is_late:
            rulebook = rules.fresh()
            if rulebook is not None and not rulebook.guard:
                return None
        return self._check(run, handler, rules, previews)

    async def _check_rollback(self, run: Run, previews: PreviewRunner) -> Outcome | None:
        if await is_needless(self._stores, self._payloads, run.task):
            return Succeeded(NEEDLESS)
        if run.handler is None or self._rules is None:
            return None
        return await self._check(run, run.handler, self._rules, previews)

    async def _check(self, run: Run, handler: Handler, rules: RulebookCache, previews: PreviewRunner) -> Outcome | None:
        rulebook, is_stale = await rules.latest()
        has_preview, is_late = handler.definition.has_preview, is_overdue(run.task, self._stores.clock.now())
        if run.task.review is None and not has_preview and not is_late and not rulebook.guard:
            return None
        if is_stale and not is_late:  # what needs approval waits, and so does what was sent with a preview
            waiting = structs.replace(run.task, review=Review(has_preview=True)) if has_preview else run.task
            check_on_stale_rules(waiting, rulebook, GuardOccasion.RUN)
            return None
        is_as_previewed = partial(self._is_as_previewed, run, handler, previews) if has_preview else None
        return await check_before_run(
            self._stores, self._payloads, run.task, is_as_previewed, version=self._version(run)
        )

    def _version(self, run: Run) -> str:
        return self._versions.get(run.task.name, "")

    async def _is_as_previewed(self, run: Run, handler: Handler, previews: PreviewRunner) -> bool:
        """Whether a preview created now has the same versions, if the first one contained any."""
        previewer, gate = self._handlers.get(f"{handler.name}{PREVIEW_SUFFIX}"), whole_gate(run.task)
        if gate is not None and is_bypassed(run.task, gate):
            return True  # break-glass: it runs regardless of changes
        if gate is not None and is_resumed(run.task, gate):
            return True  # the changes may be its own, and reviewers have approved since that it continues
        if run.task.preview is None:
            return False  # no reviewer has seen what it would do
        if previewer is None or not wants_versions(run.task.preview):
            return True
        outcome = await previews.attempt(run, previewer)
        if isinstance(outcome, Released):
            raise StoreUnavailable(outcome.reason)
        if not isinstance(outcome, Succeeded):
            return False
        return not has_changed(run.task.preview, await self._payloads.load(outcome.result))

    async def after(self, run: Run, outcome: Outcome) -> None:
        """Submit a new preview for approval, as part of the run that created it."""
        if (
            run.task.source != SYSTEM
            or not run.task.name.endswith(PREVIEW_SUFFIX)
            or not isinstance(outcome, Succeeded)
        ):
            return
        await previewed(self._stores, run.task, outcome.result, self._payloads)

    async def hold(self, run: Run, wanted: RequestStepApproval) -> HoldResponse | None:
        """Return what reviewers decided; None if the run ends and waits without a worker. Raises Denied.

        In that case the value that the handler returns is ignored.
        """
        step = RunStep(
            step=wanted.step,
            about=wanted.about,
            policies=wanted.policies,
            reason=wanted.reason,
            is_tool=wanted.is_tool,
            judged=wanted.judged,
            responses=wanted.responses,
        )
        decided = await request_step_approval(self._stores, run.task, step, version=self._version(run))
        if isinstance(decided, Withheld):
            run.withheld = decided
            return None
        return decided

    async def look(self, run: Run, asked: CheckToolCall) -> Leave:
        """Return whether a tool call is allowed by now. Raises Denied."""
        version = self._version(run)
        return await check_tool_call(self._stores, run.task, asked.tool, asked.about, asked.judged, version=version)
