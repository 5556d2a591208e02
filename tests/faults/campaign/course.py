"""The course of a campaign: fill, kill, drain, judge."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from tests.faults.campaign.app import CampaignApp
from tests.faults.campaign.judgement import Check, Verdict, judge
from tests.faults.campaign.nemesis import Nemesis
from tests.faults.campaign.nursery import Nursery
from tests.faults.campaign.plan import CLUSTER, SQLITE, Plan
from tests.faults.campaign.roles import CLERK, HASTY_WORKER, PRODUCER, WORKER
from tests.servers.binaries import available
from tests.servers.cluster import Cluster
from tests.servers.server import DURABLE, Server
from tests.waiting import eventually

Tell = Callable[[str], None]
_TELL_EVERY_S = 5.0
_LOOK_EVERY_S = 0.2
_FILL_S = 120.0
_DRAINERS = 2
# What a worker logs when something it must be able to rely on has let it down.
_COMPLAINTS = (
    "Traceback",
    "database is locked",
    "claim.repeated",
    "commit.repeated",
    "commit.failed",
    "commit.impossible",
    "lease.not_renewed",
    "lease.beat_failed",
    "duty.failed",
)


async def run(plan: Plan, tell: Tell) -> Verdict:
    """All of it. Every process it started has ended when it returns."""
    if plan.store == SQLITE:
        return await _run(plan, tell)
    with _servers(plan.store) as servers:
        return await _run(structs.replace(plan, server_url=servers.url), tell)


def _servers(store: str) -> Server | Cluster:
    return Cluster(available()["valkey"], DURABLE) if store == CLUSTER else Server(available()[store], DURABLE)


async def _run(plan: Plan, tell: Tell) -> Verdict:
    app = CampaignApp(plan.settings())
    nursery = Nursery(plan)
    began = time.monotonic()
    try:
        async with app.ade:
            course = Course(plan, app, Nemesis(plan, nursery), tell)
            await course.fill()
            await course.kill()
            await course.drain()
    finally:
        nursery.close()
    tell(f"{course.seconds:6.0f} s: reading what was written down")
    verdict = await judge(plan)
    took = {"seconds": round(time.monotonic() - began)}
    return structs.replace(
        verdict, checks=[*verdict.checks, *course.own_checks()], facts=course.facts() | verdict.facts | took
    )


class Course:
    def __init__(self, plan: Plan, app: CampaignApp, nemesis: Nemesis, tell: Tell) -> None:
        self._plan = plan
        self._app = app
        self._nemesis = nemesis
        self._tell = tell
        self._began = self._told = time.monotonic()
        self._least_in_flight = plan.aim
        self._left = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    async def fill(self) -> None:
        """Until there are enough tasks in flight."""

        async def is_full() -> bool:
            unfinished = await self._app.unfinished()
            self._nemesis.look_after()
            self._say("filling", unfinished)
            return unfinished >= self._plan.aim

        await eventually(is_full, _FILL_S, every_s=_LOOK_EVERY_S)

    async def kill(self) -> None:
        """Until as many processes were killed as were planned."""
        looked = 0.0
        while self._nemesis.killed < self._plan.kills:
            await asyncio.sleep(self._nemesis.strike())
            if time.monotonic() - looked > _LOOK_EVERY_S:
                looked = time.monotonic()
                unfinished = await self._app.unfinished()
                self._least_in_flight = min(self._least_in_flight, unfinished)
                self._say("killing", unfinished)

    async def drain(self) -> None:
        """No more kills, no new work; until everything is final, or the time for it is over."""
        self._nemesis.end([PRODUCER, WORKER])
        for slot in range(_DRAINERS):
            self._nemesis.add(HASTY_WORKER, slot)
        clerks_are_here = True

        async def is_drained() -> bool:
            nonlocal clerks_are_here
            self._left = await self._app.unfinished()
            if not self._left and clerks_are_here:  # they bring dead letters back to life, so look once more
                self._nemesis.end([CLERK])
                clerks_are_here = False
                self._left = await self._app.unfinished()
            self._nemesis.look_after()
            self._say("draining", self._left)
            return not self._left and not clerks_are_here

        with suppress(TimeoutError):
            await eventually(is_drained, self._plan.drain_s, every_s=_LOOK_EVERY_S)
        self._nemesis.end([HASTY_WORKER, CLERK])

    def own_checks(self) -> list[Check]:
        """What was seen from here, not read from the store."""
        plan, nemesis = self._plan, self._nemesis
        starts = nemesis.killed + plan.workers + plan.producers + plan.clerks + _DRAINERS
        enough = self._least_in_flight >= plan.in_flight
        complaints = complaints_in(plan.place)
        return [
            Check("no process ended by itself", starts, nemesis.ended),
            Check("no error reached a user or a log", starts, complaints),
            Check(
                "as many tasks in flight as planned, until the last kill",
                self._least_in_flight,
                [] if enough else [f"at one time only {self._least_in_flight} of {plan.in_flight}"],
            ),
        ]

    def facts(self) -> dict[str, int]:
        kills = {f"kills of {role}s": count for role, count in self._nemesis.kills.items()}
        return {
            "kills": self._nemesis.killed,
            **kills,
            "suspensions past the lease": self._nemesis.suspensions,
            "least in flight while killing": self._least_in_flight,
        }

    def _say(self, phase: str, unfinished: int) -> None:
        if time.monotonic() - self._told >= _TELL_EVERY_S:
            self._told = time.monotonic()
            killed, suspended = self._nemesis.killed, self._nemesis.suspensions
            self._tell(
                f"{self.seconds:6.0f} s: {phase}: {killed} kills, {suspended} suspensions, {unfinished} tasks in flight"
            )


def complaints_in(folder: Path) -> list[str]:
    """Lines of the processes' logs that should not be there."""
    return [
        f"{log.name}: {line[:300]}"
        for log in sorted(folder.glob("*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if any(word in line for word in _COMPLAINTS)
    ]
