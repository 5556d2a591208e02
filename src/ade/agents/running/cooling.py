"""Providers that asked to be left alone: until then no program is started that would only hear the same again."""

from collections.abc import Callable

from ade.core.agent_runs.failures import RunFailure
from ade.core.agent_runs.report import RunReport, wait_ms

_LONGEST_BY_WORDS_MS = 600_000
_WAITING = (RunFailure.RATE_LIMITED, RunFailure.OVERLOADED)


class Cooling:
    """For all runs of one profile in this process. `now` tells the time in ms."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._until = 0

    def heard(self, report: RunReport) -> None:
        """A moment that is named holds for all. A pause may be this run's alone, so others keep it for a while only."""
        if report.failure in _WAITING:
            wait = wait_ms(report, self._now()) or 0
            limit = wait if report.retry_at is not None else _LONGEST_BY_WORDS_MS
            self._until = max(self._until, self._now() + min(wait, limit))

    def left_ms(self) -> int:
        return max(self._until - self._now(), 0)
