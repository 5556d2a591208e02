"""Runs of agents, from an order to a result or to what the queue makes of a failure."""

from collections.abc import Callable

from ade.agents.running.attempts import Attempt
from ade.agents.running.cooling import Cooling
from ade.agents.running.files import Places
from ade.agents.running.orders import Order, Purse, RunDesk
from ade.core.agent_runs import telling
from ade.core.agent_runs.profiles import Profile
from ade.core.agent_runs.report import failed_outcome
from ade.core.agent_runs.results import AgentResult
from ade.core.control import RunFailed
from ade.core.errors import InvalidArguments, ProgramNotStarted
from ade.core.failure import FailureKind, TaskError
from ade.core.outcome import Failed

_ENDED_EARLY = "the run was ended before the agent was done"


class AgentRunner:
    """Runs agents of one profile. `now` tells the time in ms."""

    def __init__(self, profile: Profile, places: Places, *, now: Callable[[], int], purse: Purse | None = None) -> None:
        self.profile = profile
        self._places = places
        self._now = now
        self._purse = purse
        self._cooling = Cooling(now)

    async def run(self, order: Order, desk: RunDesk) -> AgentResult:
        """The result. Raises RunFailed with what the queue makes of a failure; a held run or a cancellation passes."""
        if wait := self._cooling.left_ms():
            message = f"the provider of {self.profile.name} asked for a pause of {wait / 1000:.0f} s more"
            raise RunFailed(Failed(_error(FailureKind.RATE_LIMITED, "AgentRateLimited", message), wait))
        attempt = Attempt(self.profile, self._places, order, desk, self._purse)
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
        attempt.transcript.succeed(_head(result), result.report)
        return result


def _head(result: AgentResult) -> str:
    return telling.header(result.subagent_type, result.agent_id, result.conversation_id)


def _refused(error: ProgramNotStarted | InvalidArguments) -> TaskError:
    if isinstance(error, InvalidArguments):
        return _error(FailureKind.BAD_ARGUMENTS, "InvalidArguments", error.detail)
    return TaskError(kind=FailureKind.UNRECOVERABLE, type="ProgramNotStarted", message=error.detail, retryable=False)


def _error(kind: FailureKind, name: str, message: str) -> TaskError:
    return TaskError(kind=kind, type=name, message=message)
