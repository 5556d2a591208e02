"""One attempt of an agent run: resumes earlier attempts, enforces budgets, and requests approval for tool calls."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from ade.agents.profiles import Profile, url_of
from ade.agents.protocols.base import ToolCalled, UsageReported
from ade.agents.runs.command_line import RunAssignment, fallback_of
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.files import RunFiles, Transcript
from ade.agents.runs.hooks import HookServer, ReviewableToolCall
from ade.agents.runs.messages import header, spent_by
from ade.agents.runs.model import (
    REPORTED_MEASURES,
    AgentProgress,
    AgentResult,
    Budget,
    BudgetMeasure,
    current_usage,
    left_of,
    tightest,
    together,
    used_up,
)
from ade.agents.runs.outcome import RunEnding, RunReport, failed_outcome, wait_ms
from ade.agents.runs.program import LiveOutput, LiveProgress, Program, ProgramEnvironment
from ade.agents.runs.spec import AgentRunSpec, DirectoryPolicy, RunContext, SpendingBudget
from ade.approvals.errors import StepDenied
from ade.common.trace_context import environment_of_trace
from ade.errors import AdeError, InvalidArguments, ProgramNotStarted
from ade.failures import FailureKind, TaskError
from ade.logs import Log
from ade.tasks.outcomes import Failed, RunFailed

# Resuming an earlier attempt, and the remaining budget. No I/O.


_DECIDED = (
    "You were stopped before a tool call that people had to decide on. They have decided: make that call again exactly"
    " as it was. If it is denied, follow the response that comes with the denial. Then continue."
)
_DENIED = "You were stopped before a tool call that people had to decide on. Do not make that call. {} Then continue."


def started_progress(profile: Profile, spec: AgentRunSpec, transcript: Transcript) -> AgentProgress:
    """Return the initial progress: in the session of the earlier attempt, whose cost counts."""
    new = AgentProgress(
        subagent_type=profile.name, output_file=str(transcript.path), session_tokens=spec.session_tokens
    )
    before = spec.earlier
    if before is None:
        return new
    return replace(
        before,
        output_file=new.output_file,
        earlier=together(before.earlier, current_usage(before)),
        tokens=None,
        cost_usd=None,
        turns=None,
    )


def first_assignment(profile: Profile, spec: AgentRunSpec) -> RunAssignment:
    """Return the assignment of the first program, which resumes the earlier attempt if there is one."""
    before, assignment = spec.earlier, spec.assignment
    if before is None:
        return assignment
    if before.fell_back:
        assignment = replace(assignment, model=profile.fallback_model or spec.parent_model or assignment.model)
    if before.is_deferred:
        assignment = resumed_assignment(profile, assignment)
    return resumed(assignment, before)


def resumed_assignment(profile: Profile, assignment: RunAssignment) -> RunAssignment:
    """Replace the prompt, which was already sent: empty for a program that waits in its session, else to continue."""
    return replace(assignment, prompt="" if profile.can_defer else _DECIDED)


def resumed(assignment: RunAssignment, known: AgentProgress) -> RunAssignment:
    """Return the assignment in the known session or, if there is none, in the requested one."""
    if known.session_id is None and known.conversation_id is None and known.agent_id is None:
        return assignment
    return replace(
        assignment,
        session_id=known.session_id,
        agent_id=known.agent_id,
        conversation_id=known.conversation_id,
    )


def as_printed(call: ToolCalled) -> ReviewableToolCall:
    """Return a call that no hook has checked. Invalid arguments are shown verbatim, and match no rule as harmless."""
    try:
        found = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        found = None
    arguments: dict[str, Any] = found if isinstance(found, dict) else {"input": call.arguments}
    return ReviewableToolCall(call.name, arguments, arguments)


def difference(all_of_it: UsageReported, before: UsageReported) -> UsageReported:
    """Return the usage since an earlier one."""
    left = {}
    for name in ("tokens", "cost_usd", "turns"):
        value = getattr(all_of_it, name)
        left[name] = None if value is None else value - (getattr(before, name) or 0)
    return UsageReported(**left)


def unenforced_limits(profile: Profile, budget: Budget) -> list[str]:
    """Return notes about limits that cannot be enforced, because the program does not report the measure."""
    reported = REPORTED_MEASURES.get(profile.protocol, frozenset())
    limited = [measure for measure in BudgetMeasure if getattr(budget, measure.value) is not None]
    return [
        f"[budget] {profile.name} does not report its {measure.words}: that limit cannot be enforced"
        for measure in limited
        if measure not in reported
    ]


_MOST_PROGRAMS = 100  # program starts per run; every tool call that is approved later needs one
_AUTHOR_BUDGET_S = 5.0  # interval for reading what the author's other runs have spent
_ASKS_AGAIN = "it requests a tool call that was decided again and again, without taking in the decision"
TASK, AUTHOR = "task", "author"
log = Log("ade.agents")


class AgentRunAttempt:
    """One attempt: usually one program, plus one after an unavailable model and one after each approved tool call."""

    def __init__(
        self,
        profile: Profile,
        places: RunFiles,
        spec: AgentRunSpec,
        context: RunContext,
        spending: SpendingBudget | None,
    ) -> None:
        self._profile = profile
        self._places = places
        self._spec = spec
        self._context = context
        self._spending = spending
        self._began = time.monotonic()
        self._lines = LiveOutput(context)
        self.transcript: Transcript = places.transcript(spec.task_id, spec.attempt, spec.run_id)
        self._progress = LiveProgress(context, profile, started_progress(profile, spec, self.transcript))
        self._before = self._progress.now.earlier  # spent before this attempt
        self._author_left: Budget | None = None  # what other runs have left of the author's budget
        self._budgets: dict[str, Budget] = {}  # of the current program
        self._pending: ReviewableToolCall | None = None  # the call that the last program was not allowed to make
        self._decided: ReviewableToolCall | None = None  # the call that was decided on when it was requested

    async def perform(self) -> RunReport:
        """Run programs until the attempt is done, and return the last report."""
        self.transcript.start(self._spec.description, self._profile.name)
        for line in unenforced_limits(self._profile, self._spec.budget):
            await self._lines.say(line)
        await self._read_author_budget()
        await self._progress.keep()
        watching = asyncio.create_task(self._watch_author_budget())
        try:
            return await self._programs()
        finally:
            watching.cancel()
            await asyncio.shield(self._leave())

    async def _programs(self) -> RunReport:
        assignment = first_assignment(self._profile, self._spec)
        if (earlier := self._progress.now).is_deferred and earlier.deferred_call is not None:
            assignment = await self._decided_on(as_printed(earlier.deferred_call), assignment)
        report = RunReport(exit_code=0)
        for _ in range(_MOST_PROGRAMS):
            self._share_out()
            if (why := used_up(self._budgets)) is not None:
                return replace(report, failure=RunFailure.BUDGET_EXCEEDED, error=why)
            report = await self._program(assignment)
            other = self._other_model(assignment, report)
            if other is not None:
                await self._lines.say(f"[model] {assignment.model or 'its model'} is not to be had; now {other.model}")
                self._progress.now = replace(
                    self._progress.now, fell_back=True, session_id=None, agent_id=None, conversation_id=None
                )
                assignment = other
            elif report.ended is RunEnding.DEFERRED and report.deferred is not None:
                call = self._pending or as_printed(report.deferred)
                if call == self._decided:
                    return replace(report, failure=RunFailure.REPORTED, error=_ASKS_AGAIN)
                unchecked = None if self._profile.is_guarded else report.deferred  # a hook checks the call again
                self._progress.now = now = replace(self._progress.now, is_deferred=True, deferred_call=unchecked)
                await self._progress.keep()
                assignment = resumed(resumed_assignment(self._profile, assignment), now)
                assignment = await self._decided_on(call, assignment)
                self._decided = call
            else:
                return report
        message = f"the agent was started {_MOST_PROGRAMS} times in one run, and still asks for tools"
        return replace(report, failure=RunFailure.REPORTED, error=message)

    async def _program(self, assignment: RunAssignment) -> RunReport:
        self._progress.is_identified = False
        is_resumed = assignment.session_id is not None and self._profile.counts_sessions
        self._progress.tokens_before = (self._progress.now.session_tokens or 0) if is_resumed else 0
        program = Program(self._profile, self._lines, self._progress, self.transcript)
        line = HookServer(self._context, can_defer=self._profile.can_defer, on_decided=self._has_gone_on)
        async with line.opened():
            report = await program.run(self._limited(assignment), self._setting(line))
        self._pending = line.pending
        now = self._progress.now
        if report.failure is not None and not self._progress.is_identified:
            # The session might be gone: the next attempt starts where its spec says, instead of failing again.
            now = replace(
                now, session_id=None, agent_id=None, conversation_id=None, is_deferred=False, deferred_call=None
            )
        if self._profile.counts_sessions:
            now = replace(now, session_tokens=report.spent.tokens or now.session_tokens)
        # With a hook, ADE knows when the call is made. Until then, the next attempt must be told about it again.
        is_deferred = now.is_deferred and report.failure is not None and self._profile.is_guarded
        self._progress.now = replace(
            now,
            earlier=together(now.earlier, self._progress.own(report.spent)),
            tokens=None,
            cost_usd=None,
            turns=None,
            is_deferred=is_deferred,
            deferred_call=now.deferred_call if is_deferred else None,
        )
        await self._progress.keep()
        return report

    def _share_out(self) -> None:
        """Give the next program what is left of the budgets of the task and of its author."""
        self._budgets[TASK] = left_of(self._spec.budget, self._progress.now.earlier)
        if self._author_left is not None:
            self._budgets[AUTHOR] = left_of(self._author_left, self._spent())

    async def _has_gone_on(self) -> None:
        """The call is made or denied now, as reviewers decided; later attempts must not repeat it."""
        if self._progress.now.is_deferred:
            self._progress.now = replace(self._progress.now, is_deferred=False)
            await self._progress.keep()

    def _other_model(self, assignment: RunAssignment, report: RunReport) -> RunAssignment | None:
        if self._progress.now.fell_back:
            return None
        return fallback_of(self._profile, assignment, report, parent_model=self._spec.parent_model)

    async def _decided_on(self, call: ReviewableToolCall, assignment: RunAssignment) -> RunAssignment:
        """Return the next assignment if reviewers have decided on the tool call; otherwise the run ends here, and a
        later one resumes the session.

        If they denied it, a hook tells the agent when it makes the call again. Without a hook, the prompt does.
        """
        try:
            await self._context.guard(call.tool, call.arguments, shown=call.shown)
        except StepDenied as error:
            if not self._profile.is_guarded:
                return replace(assignment, prompt=_DENIED.format(error.detail))
        return assignment

    def _limited(self, assignment: RunAssignment) -> RunAssignment:
        """Pass what is left to programs that can limit themselves."""
        tight = tightest(*self._budgets.values(), Budget(turns=assignment.max_turns))
        return replace(assignment, max_turns=tight.turns, max_cost_usd=tight.cost_usd)

    def _setting(self, line: HookServer) -> ProgramEnvironment:
        spec = self._spec
        directory, care = (
            self._places.workspace(spec.workspace or spec.task_id, spec.task_id)
            if spec.directory is None
            else (spec.directory, DirectoryPolicy.EXISTING)
        )
        added = {"ADE_TASK_ID": spec.task_id, "ADE_RUN_ID": spec.run_id, **environment_of_trace(spec.trace)}
        return ProgramEnvironment(
            directory=directory,
            care=care,
            environment=spec.environment,
            added=added,
            budgets=self._budgets,
            line=line,
            silence_s=spec.lease_s,
        )

    async def _watch_author_budget(self) -> None:
        """Reread the author's budget regularly, because the author's other runs share it."""
        while self._spending is not None and self._spec.author is not None:
            await asyncio.sleep(_AUTHOR_BUDGET_S)
            try:
                await self._enter()
                await self._read_author_budget()
            except AdeError as error:  # the next read might succeed
                log.warning("agent_run.budget_not_read", task_id=self._spec.task_id, error=str(error))

    async def _read_author_budget(self) -> None:
        if self._spending is None or self._spec.author is None:
            return
        self._author_left = await self._spending.budget_of(self._spec.author, self._spec.run_id)
        if self._author_left is not None and AUTHOR in self._budgets:  # a program is running
            done = difference(self._progress.now.earlier, self._before)
            self._budgets[AUTHOR] = left_of(self._author_left, done)

    async def _enter(self) -> None:
        if self._spending is not None and self._spec.author is not None:
            await self._spending.enter(self._spec.author, self._spec.run_id, self._spent())

    def _spent(self) -> UsageReported:
        """Return what this attempt has spent, as far as known."""
        return difference(spent_by(self._progress.now), self._before)

    async def _leave(self) -> None:
        try:
            await self._enter()
            await self._lines.end()
        except AdeError as error:  # the outcome is already recorded, or another worker has the run by now
            log.warning("agent_run.end_not_recorded", task_id=self._spec.task_id, error=str(error))

    def result(self, report: RunReport) -> AgentResult:
        """Return the task result of a successful report."""
        known = self._progress.now
        return AgentResult(
            report=report.result or "",
            subagent_type=self._profile.name,
            session_id=report.session_id,
            agent_id=report.agent_id,
            conversation_id=report.conversation_id,
            model=report.model,
            url=url_of(self._profile, report),
            tokens=known.earlier.tokens,
            cost_usd=known.earlier.cost_usd,
            turns=known.earlier.turns,
            session_tokens=known.session_tokens,
            tool_calls=known.tool_call_count,
            duration_ms=round((time.monotonic() - self._began) * 1000),
            output_file=str(self.transcript.path),
            exit_code=report.exit_code,
        )


# Provider backoff: during a requested pause no program is started, because it would fail in the same way.


_LONGEST_BY_WORDS_MS = 600_000
_WAITING = (RunFailure.RATE_LIMITED, RunFailure.OVERLOADED)


class RateLimitBackoff:
    """The pause of one profile's provider, for all runs in this process. `now` returns the time in ms."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._until = 0

    def heard(self, report: RunReport) -> None:
        """Record a pause. A stated time applies to all runs; a duration might concern only this run: it is capped."""
        if report.failure in _WAITING:
            wait = wait_ms(report, self._now()) or 0
            limit = wait if report.retry_at is not None else _LONGEST_BY_WORDS_MS
            self._until = max(self._until, self._now() + min(wait, limit))

    def left_ms(self) -> int:
        """Return how long the pause still lasts."""
        return max(self._until - self._now(), 0)


# From a run spec to a result or to a failed task outcome.


_ENDED_EARLY = "the run was ended before the agent was done"


class AgentRunner:
    """Runs agents of one profile. `now` returns the time in ms."""

    def __init__(
        self, profile: Profile, places: RunFiles, *, now: Callable[[], int], spending: SpendingBudget | None = None
    ) -> None:
        self.profile = profile
        self._places = places
        self._now = now
        self._spending = spending
        self._cooling = RateLimitBackoff(now)

    async def run(self, spec: AgentRunSpec, context: RunContext) -> AgentResult:
        """Return the result. Raises RunFailed with the task outcome; holds and cancellations propagate."""
        if wait := self._cooling.left_ms():
            message = f"the provider of {self.profile.name} asked for a pause of {wait / 1000:.0f} s more"
            raise RunFailed(Failed(_error(FailureKind.RATE_LIMITED, "AgentRateLimited", message), wait))
        attempt = AgentRunAttempt(self.profile, self._places, spec, context, self._spending)
        try:
            report = await attempt.perform()
        except (ProgramNotStarted, InvalidArguments) as error:
            attempt.transcript.fail(error.detail)
            raise RunFailed(Failed(_refused(error))) from error
        except BaseException:
            attempt.transcript.fail(_ENDED_EARLY)
            raise
        self._cooling.heard(report)
        if report.failure is not None:
            attempt.transcript.fail(report.error or report.failure.value)
            raise RunFailed(failed_outcome(report, self._now()))
        result = attempt.result(report)
        head = header(result.subagent_type, result.agent_id, result.conversation_id)
        attempt.transcript.succeed(head, result.report)
        return result


def _refused(error: ProgramNotStarted | InvalidArguments) -> TaskError:
    if isinstance(error, InvalidArguments):
        return _error(FailureKind.BAD_ARGUMENTS, "InvalidArguments", error.detail)
    return TaskError(kind=FailureKind.UNRECOVERABLE, type="ProgramNotStarted", message=error.detail, retryable=False)


def _error(kind: FailureKind, name: str, message: str) -> TaskError:
    return TaskError(kind=kind, type=name, message=message)
