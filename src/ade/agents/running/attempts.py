"""One attempt of a run: it goes on where an earlier one ended, within its budgets, and asks before dangerous tools."""

import asyncio
import time

from msgspec.structs import replace

from ade.agents.limits import Care
from ade.agents.running.files import Places, Transcript
from ade.agents.running.going_on import (
    as_printed,
    begun,
    difference,
    first_assignment,
    going_on,
    resumed,
    unkept,
)
from ade.agents.running.hooks import AskedCall, HookLine
from ade.agents.running.live import LiveLines, LiveProgress
from ade.agents.running.orders import Order, Purse, RunDesk
from ade.agents.running.program import Program, Setting
from ade.core.agent_runs.budgets import Budget, left_of, tightest, together, used_up
from ade.core.agent_runs.command_line import Assignment, fallback_of
from ade.core.agent_runs.events import Spent
from ade.core.agent_runs.failures import RunFailure
from ade.core.agent_runs.profiles import Profile, url_of
from ade.core.agent_runs.report import Ended, RunReport
from ade.core.agent_runs.results import AgentResult
from ade.core.errors import AdeError
from ade.core.traces import environment_of_trace
from ade.logs import Log

_MOST_PROGRAMS = 100  # starts within one run: every tool call that is allowed afterwards takes one
_PURSE_S = 5.0  # how often it is looked what the author's other runs have spent
_ASKS_AGAIN = "it asks for the tool call that people have agreed to again and again, and does not make it"
TASK, AUTHOR = "task", "author"
log = Log("ade.agents")


class Attempt:
    """One attempt: usually one program; one more after a model that is not to be had, and after allowed tool calls."""

    def __init__(self, profile: Profile, places: Places, order: Order, desk: RunDesk, purse: Purse | None) -> None:
        self._profile = profile
        self._places = places
        self._order = order
        self._desk = desk
        self._purse = purse
        self._began = time.monotonic()
        self._lines = LiveLines(desk)
        self.transcript: Transcript = places.transcript(order.task_id, order.attempt, order.run_id)
        self._progress = LiveProgress(desk, profile, begun(profile, order, self.transcript))
        self._before = self._progress.now.earlier  # what was spent before this attempt
        self._author_left: Budget | None = None  # what other runs have left of the author's budget
        self._budgets: dict[str, Budget] = {}  # for the program that runs now
        self._asked: AskedCall | None = None  # the call that the last program was not allowed to make
        self._agreed: AskedCall | None = None  # the one that people had agreed to when it was asked for

    async def perform(self) -> RunReport:
        self.transcript.start(self._order.description, self._profile.name)
        for line in unkept(self._profile, self._order.budget):
            await self._lines.say(line)
        await self._look_into_purse()
        await self._progress.keep()
        watching = asyncio.create_task(self._watch_purse())
        try:
            return await self._programs()
        finally:
            watching.cancel()
            await asyncio.shield(self._leave())

    async def _programs(self) -> RunReport:
        assignment = first_assignment(self._profile, self._order)
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
            elif report.ended is Ended.DEFERRED and report.deferred is not None:
                call = self._asked or as_printed(report.deferred)
                if call == self._agreed:
                    return replace(report, failure=RunFailure.REPORTED, error=_ASKS_AGAIN)
                await self._ask_for(call)
                assignment = resumed(going_on(self._profile, assignment), self._progress.now)
            else:
                return report
        message = f"the agent was started {_MOST_PROGRAMS} times in one run, and still asks for tools"
        return replace(report, failure=RunFailure.REPORTED, error=message)

    async def _program(self, assignment: Assignment) -> RunReport:
        self._progress.is_identified = False
        is_resumed = assignment.session_id is not None and self._profile.counts_sessions
        self._progress.tokens_before = (self._progress.now.session_tokens or 0) if is_resumed else 0
        program = Program(self._profile, self._lines, self._progress, self.transcript)
        line = HookLine(self._desk, can_defer=self._profile.can_defer, on_granted=self._has_gone_on)
        async with line.opened():
            report = await program.run(self._limited(assignment), self._setting(line))
        self._asked = line.asked
        now = self._progress.now
        if report.failure is not None and not self._progress.is_identified:
            # The session may be gone: the next attempt begins where its order says, instead of failing once more.
            now = replace(now, session_id=None, agent_id=None, conversation_id=None, is_deferred=False)
        if self._profile.counts_sessions:
            now = replace(now, session_tokens=report.spent.tokens or now.session_tokens)
        # With a hook it is known when the call is made; until then the next attempt must be told of it again.
        is_deferred = now.is_deferred and report.failure is not None and self._profile.is_guarded
        self._progress.now = replace(
            now,
            earlier=together(now.earlier, self._progress.own(report.spent)),
            tokens=None,
            cost_usd=None,
            turns=None,
            is_deferred=is_deferred,
        )
        await self._progress.keep()
        return report

    def _share_out(self) -> None:
        """Each program has what is left, of the task's budget and of its author's."""
        self._budgets[TASK] = left_of(self._order.budget, self._progress.now.earlier)
        if self._author_left is not None:
            self._budgets[AUTHOR] = left_of(self._author_left, self._spent())

    async def _has_gone_on(self) -> None:
        """The call that people agreed to is made now; whoever goes on after this must not make it once more."""
        if self._progress.now.is_deferred:
            self._progress.now = replace(self._progress.now, is_deferred=False)
            await self._progress.keep()

    def _other_model(self, assignment: Assignment, report: RunReport) -> Assignment | None:
        if self._progress.now.fell_back:
            return None
        return fallback_of(self._profile, assignment, report, parent_model=self._order.parent_model)

    async def _ask_for(self, call: AskedCall) -> None:
        """Returns if the agent may use the tool; else the run ends here, and another goes on in the session."""
        self._progress.now = replace(self._progress.now, is_deferred=True)
        await self._progress.keep()
        await self._desk.guard(call.tool, call.arguments, shown=call.shown)
        self._agreed = call

    def _limited(self, assignment: Assignment) -> Assignment:
        """What is left is also told to programs that can limit themselves."""
        tight = tightest(*self._budgets.values(), Budget(turns=assignment.max_turns))
        return replace(assignment, max_turns=tight.turns, max_cost_usd=tight.cost_usd)

    def _setting(self, line: HookLine) -> Setting:
        order = self._order
        directory, care = (
            self._places.workspace(order.workspace or order.task_id, order.task_id)
            if order.directory is None
            else (order.directory, Care.EXISTING)
        )
        added = {"ADE_TASK_ID": order.task_id, "ADE_RUN_ID": order.run_id, **environment_of_trace(order.trace)}
        return Setting(
            directory=directory,
            care=care,
            environment=order.environment,
            added=added,
            budgets=self._budgets,
            line=line,
            silence_s=order.lease_s,
        )

    async def _watch_purse(self) -> None:
        """The author may have other runs, which spend of the same budget."""
        while self._purse is not None and self._order.author is not None:
            await asyncio.sleep(_PURSE_S)
            try:
                await self._enter()
                await self._look_into_purse()
            except AdeError as error:  # the next look may succeed
                log.warning("agent.purse_not_read", task_id=self._order.task_id, error=str(error))

    async def _look_into_purse(self) -> None:
        if self._purse is None or self._order.author is None:
            return
        self._author_left = await self._purse.budget_of(self._order.author, self._order.run_id)
        if self._author_left is not None and AUTHOR in self._budgets:  # a program is at it
            done = difference(self._progress.now.earlier, self._before)
            self._budgets[AUTHOR] = left_of(self._author_left, done)

    async def _enter(self) -> None:
        if self._purse is not None and self._order.author is not None:
            await self._purse.enter(self._order.author, self._order.run_id, self._spent())

    def _spent(self) -> Spent:
        """By this attempt, as far as is known."""
        now = self._progress.now
        running = Spent(tokens=now.tokens, cost_usd=now.cost_usd, turns=now.turns)
        return difference(together(now.earlier, running), self._before)

    async def _leave(self) -> None:
        try:
            await self._enter()
            await self._lines.end()
        except AdeError as error:  # the run is told of already, or is somebody else's by now
            log.warning("agent.not_told", task_id=self._order.task_id, error=str(error))

    def result(self, report: RunReport) -> AgentResult:
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
