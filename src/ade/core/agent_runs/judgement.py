"""Whether a run succeeded, and if not, why. One rule for all programs, because exit codes alone lie."""

from msgspec import Struct

from ade.core.agent_runs.facts import RunFacts
from ade.core.agent_runs.failures import FAILURE_OF_STATUS, RunFailure
from ade.core.agent_runs.marks import Reading, read_error
from ade.core.agent_runs.profiles import Profile, ProtocolName

_LAST_WORDS = 2_000  # characters
_WAITING = (RunFailure.RATE_LIMITED, RunFailure.OVERLOADED)


class Ending(Struct, frozen=True, kw_only=True):
    """What is known when the process is gone."""

    exit_code: int  # below zero: the signal that ended it
    stderr: str = ""
    is_cut: bool = False  # the output ends in the middle of a line
    stopped_for: RunFailure | None = None  # why ADE ended it, if it did
    stop_message: str = ""


class Finding(Struct, frozen=True, kw_only=True):
    failure: RunFailure
    message: str
    retry_after_ms: int | None = None
    retry_at: int | None = None


def judge(profile: Profile, facts: RunFacts, ending: Ending) -> Finding | None:
    """None for success: exit code 0, and a record that says success without an error flag."""
    if ending.exit_code == 0 and facts.is_concluded and not facts.is_error:
        return None
    message = facts.complaint or _seen_from_outside(profile, facts, ending)
    if ending.stopped_for is not None:
        return Finding(failure=ending.stopped_for, message=ending.stop_message or message)
    reading = _reading(profile, facts.complaint or "", ending.stderr)
    failure = (
        facts.failure
        or profile.exit_codes.get(ending.exit_code)
        or reading.failure
        or FAILURE_OF_STATUS.get(facts.status or 0)
        or _by_the_way_it_ended(profile, facts.complaint, ending)
    )
    if failure not in _WAITING:
        return Finding(failure=failure, message=message)
    return Finding(
        failure=failure,
        message=message,
        retry_after_ms=reading.retry_after_ms,
        retry_at=reading.retry_at or facts.retry_at,
    )


def _reading(profile: Profile, complaint: str, stderr: str) -> Reading:
    """What the program complained of; without that, its last words on stderr. The model may be refused in either."""
    if profile.protocol is ProtocolName.TEXT:  # an unknown program: only what its profile says
        return read_error(
            stderr, rate_limit_marks=profile.rate_limit_marks, model_marks=profile.model_marks, guess=False
        )
    reading = read_error(
        complaint or stderr, rate_limit_marks=profile.rate_limit_marks, model_marks=profile.model_marks
    )
    also = read_error(stderr, rate_limit_marks=(), model_marks=profile.model_marks, guess=False)
    return also if also.failure is RunFailure.MODEL_UNSUPPORTED else reading


def _by_the_way_it_ended(profile: Profile, complaint: str | None, ending: Ending) -> RunFailure:
    if complaint:
        return RunFailure.REPORTED
    if ending.is_cut or any(mark in ending.stderr for mark in profile.cut_marks):
        return RunFailure.OUTPUT_CUT
    if ending.exit_code < 0:
        return RunFailure.KILLED
    return RunFailure.EXITED if ending.exit_code else RunFailure.NO_RESULT


def _seen_from_outside(profile: Profile, facts: RunFacts, ending: Ending) -> str:
    """How it ended, and its last words on stderr: the agent itself has not said why."""
    end = f"was ended by signal {-ending.exit_code}" if ending.exit_code < 0 else f"exited with code {ending.exit_code}"
    if profile.protocol is ProtocolName.TEXT:
        seen = f"the program {end}"
    elif facts.is_concluded:
        seen = f"the agent {end} although it had reported success"
    elif ending.is_cut:
        seen = f"the agent's output ends in the middle of a line, and it {end}"
    elif facts.long_lines:
        seen = f"the agent {end} without a result that could be read; too long lines: {facts.long_lines}"
    else:
        seen = f"the agent {end} without a result"
    last_words = ending.stderr.strip()[-_LAST_WORDS:]
    return f"{seen}: {last_words}" if last_words else seen
