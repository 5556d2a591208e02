"""Who had the lock when, and how fairly it went round."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.figures import percentile


@dataclass(slots=True)
class Turn:
    """One time that an agent asked, in monotonic nanoseconds, which all processes share. `got` is 0 while it waits."""

    agent: int
    asked: int
    got: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Fight:
    """Everything that the agents did from `began` to `ended`. One who got the lock later still waits here."""

    turns: Sequence[Turn]
    began: int
    ended: int
    agents: int

    def had(self) -> list[Turn]:
        """The turns in which somebody had the lock, in their order."""
        return sorted((turn for turn in self.turns if self._had_it(turn)), key=lambda turn: turn.got)

    def is_exclusive(self) -> bool:
        """Whether everybody had let go before the next one came in."""
        return all(one.left <= following.got for one, following in pairwise(self.had()))

    def handovers(self) -> int:
        """How often it went from one agent to another: who takes it again right away hands nothing over."""
        return sum(one.agent != following.agent for one, following in pairwise(self.had()))

    def waits_ms(self) -> list[float]:
        """How long everybody waited; those who wait at the end, so far."""
        return [((turn.got if self._had_it(turn) else self.ended) - turn.asked) / 1e6 for turn in self.turns]

    def most_overtaken(self) -> int:
        """How many who had asked later got the lock before somebody who waited, at most."""
        asking = sorted(self.turns, key=lambda turn: turn.asked)
        overtaken = [0] * len(asking)
        waiting: dict[int, int] = {}  # agent -> place in `asking`: nobody asks twice at a time
        arrived = 0
        for turn in self.had():
            while arrived < len(asking) and asking[arrived].asked <= turn.got:
                waiting[asking[arrived].agent] = arrived
                arrived += 1
            own = waiting.pop(turn.agent)
            for place in waiting.values():
                overtaken[place] += place < own
        return max(overtaken, default=0)

    def turns_of_agents(self) -> list[int]:
        counts = [0] * self.agents
        for turn in self.had():
            counts[turn.agent] += 1
        return counts

    def figures(self) -> dict[str, float]:
        waits, counts = self.waits_ms(), self.turns_of_agents()
        return {
            "handovers_per_second": self.handovers() / ((self.ended - self.began) / 1e9),
            "overtaken": self.most_overtaken(),
            "wait_p99_ms": percentile(waits, 99),
            "wait_max_ms": max(waits),
            "least_turns": min(counts),
            "most_turns": max(counts),
            "jain": jain_index(counts),
            "turns": sum(counts),
        }

    def _had_it(self, turn: Turn) -> bool:
        return 0 < turn.got <= self.ended


def jain_index(shares: Sequence[float]) -> float:
    """1 if all have the same, 1/n if one of n has everything; 0 if nobody has anything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0
