"""Who harms the processes of a campaign: by chance, but by the same dice for the same seed."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.faults.campaign.nursery import Nursery
from tests.faults.campaign.plan import Plan
from tests.faults.campaign.roles import CLERK, PRODUCER, WORKER
from tests.faults.workers import is_alive


@dataclass
class Victim:
    """A place in the campaign that is filled by one process after the other."""

    role: str
    slot: int
    pid: int
    suspended_until: float | None = None

    @property
    def name(self) -> str:
        return f"{self.role}-{self.slot}"


@dataclass
class Nemesis:
    plan: Plan
    nursery: Nursery
    victims: list[Victim] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)  # by role
    suspensions: int = 0
    ended: list[str] = field(default_factory=list)  # processes that ended though nobody had killed them

    def __post_init__(self) -> None:
        self._dice = Random(self.plan.seed)
        for role, count in ((WORKER, self.plan.workers), (PRODUCER, self.plan.producers), (CLERK, self.plan.clerks)):
            self.kills[role] = 0
            self.victims += [Victim(role, slot, self.nursery.start(role, slot)) for slot in range(count)]

    @property
    def killed(self) -> int:
        return sum(self.kills.values())

    def strike(self) -> float:
        """Kill one, or suspend one for longer than its lease. Answers how long to wait for the next time."""
        self.look_after()
        awake = [victim for victim in self.victims if victim.role == WORKER and victim.suspended_until is None]
        if len(awake) > 1 and self._dice.random() < self.plan.suspensions / (1 + self.plan.suspensions):
            self._suspend(self._dice.choice(awake))
        else:
            self._kill(self._dice.choice(self.victims))
        return self._dice.expovariate(self.plan.kills_per_s * (1 + self.plan.suspensions))

    def look_after(self) -> None:
        """Wake those who have slept for long enough; notice and replace those who ended by themselves."""
        for victim in self.victims:
            if not is_alive(victim.pid):
                self.ended.append(f"{victim.name} ended with {self.nursery.reap(victim.pid)}")
                self._start(victim)
            elif victim.suspended_until is not None and time.monotonic() >= victim.suspended_until:
                self._wake(victim)

    def end(self, roles: Sequence[str]) -> None:
        """Ask processes to stop, and note those that did not do so in peace."""
        leaving = [victim for victim in self.victims if victim.role in roles]
        for victim in leaving:
            self._wake(victim)
            os.kill(victim.pid, signal.SIGTERM)
        for victim in leaving:
            code = self.nursery.reap(victim.pid)
            if code not in (0, -signal.SIGTERM):  # one that has just been started does not catch signals yet
                self.ended.append(f"{victim.name} was asked to stop and ended with {code}")
            self.victims.remove(victim)

    def add(self, role: str, slot: int) -> None:
        self.victims.append(Victim(role, slot, self.nursery.start(role, slot)))

    def _kill(self, victim: Victim) -> None:
        os.kill(victim.pid, signal.SIGKILL)
        code = self.nursery.reap(victim.pid)
        if code == -signal.SIGKILL:
            self.kills[victim.role] += 1
        else:
            self.ended.append(f"{victim.name} ended with {code}")
        self._start(victim)

    def _start(self, victim: Victim) -> None:
        victim.suspended_until = None
        victim.pid = self.nursery.start(victim.role, victim.slot)

    def _suspend(self, victim: Victim) -> None:
        os.kill(victim.pid, signal.SIGSTOP)
        self.suspensions += 1
        victim.suspended_until = time.monotonic() + self.plan.lease_s * self._dice.uniform(1.2, 2.5)

    def _wake(self, victim: Victim) -> None:
        if victim.suspended_until is not None:
            os.kill(victim.pid, signal.SIGCONT)
            victim.suspended_until = None
