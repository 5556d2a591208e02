"""`python -m benchmarks [--quick] [--only redis] [--peers saq,huey]`: measure, judge, write the results."""

import argparse
import datetime
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, report, server
from benchmarks.bars import bars_of
from benchmarks.conduct import conduct, configuration, runs_folder, say
from benchmarks.contestants import ENTRIES, Role, Store, of_store
from benchmarks.environments import HERE, SCRATCH, NotInstalled, interpreter
from benchmarks.judging import judge
from benchmarks.outcomes import Outcomes
from benchmarks.plan import FULL, GROWTH, QUICK, TITLES, Plan


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if ADE or its floor failed. A peer that fails is reported; a bar that is not met is a result."""
    parsed = parser().parse_args(arguments)
    began = time.monotonic()
    parts = [_measure(plan) for plan in chosen(parsed)]
    run = report.Run(
        parts=parts,
        machine={**machine.describe(), **_server(parts)},
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=time.monotonic() - began,
    )
    failed = any(_failed(part) for part in parts)
    # A part of the picture, or a broken one, must not replace the whole one.
    whole = not failed and [part.plan for part in parts] == list(FULL)
    page = report.write(run, HERE if whole else SCRATCH)
    _tell(parts, page)
    return 1 if failed else 0


def _measure(plan: Plan) -> report.Part:
    absent = _absent(plan)
    present = plan.of([name for name in plan.contestants if name not in absent])
    configurations = {name: configuration(name) for name in present.contestants}
    outcomes = conduct(present) if present.contestants else Outcomes([])
    return report.Part(plan, outcomes, configurations, absent)


def _absent(plan: Plan) -> Mapping[str, str]:
    """Make the environments; who has none is out, with the reason."""
    began = time.monotonic()
    if plan.store is Store.REDIS:
        try:
            say(f"server: {server.describe(runs_folder())}")
        except server.NoServer as reason:
            return dict.fromkeys(plan.contestants, str(reason))
    absent: dict[str, str] = {}
    for name in plan.contestants:
        try:
            interpreter(ENTRIES[name].requirements)
        except NotInstalled as reason:
            say(f"{name}: {reason}")
            absent[name] = str(reason)
    say(f"{plan.store}: environments ready after {time.monotonic() - began:.1f} s")
    return absent


def _server(parts: Sequence[report.Part]) -> Mapping[str, str]:
    if not any(part.plan.store is Store.REDIS and part.outcomes.all for part in parts):
        return {}
    return {"server": server.describe(runs_folder())}


def _failed(part: report.Part) -> bool:
    """Whether something of this repository failed."""
    unable = {outcome.contestant for outcome in part.outcomes.failures()} | set(part.absent)
    unable |= {name for name, told in part.configurations.items() if "failed" in told}
    return any(ENTRIES[name].role is not Role.PEER for name in unable)


def _tell(parts: Sequence[report.Part], page: Path) -> None:
    for part in parts:
        for bar in bars_of(part.plan):
            verdict = judge(bar, part.outcomes)
            reach = f", moonshot {verdict.moonshot}" if verdict.moonshot else ""
            say(f"{part.plan.store}: {verdict.title}: {verdict.measured}, bar {verdict.bar} {verdict.met}{reach}")
    say(f"written to {page}")


def chosen(parsed: argparse.Namespace) -> list[Plan]:
    """The plans with what the command line says."""
    kind = QUICK if parsed.quick else GROWTH if parsed.growth else FULL
    plans = [plan for plan in kind if parsed.only in (None, plan.store)]
    if parsed.peers is not None and not parsed.growth:
        plans = [plan.of([name for name in of_store(plan.store) if _wanted(name, parsed.peers)]) for plan in plans]
    if parsed.steps is not None:
        plans = [_of_steps(plan, parsed.steps) for plan in plans]
    if parsed.rounds is not None:
        plans = [replace(plan, rounds=parsed.rounds) for plan in plans]
    return plans


def _of_steps(plan: Plan, names: Sequence[str]) -> Plan:
    """Without the contestants that take part in none of these."""
    steps = [step for step in plan.steps if step.name in names]
    return replace(plan, steps=steps).of([name for name in plan.contestants if any(step.takes(name) for step in steps)])


def _wanted(name: str, peers: Sequence[str]) -> bool:
    """ADE and the floor always; a peer by its name, which may be that of its module."""
    entry = ENTRIES[name]
    return entry.role is not Role.PEER or name in peers or entry.module.partition(":")[0] in peers


class _Names:
    """A comma-separated list of known names; `none` is an empty one."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        names = [] if text == "none" else text.split(",")
        for name in names:
            if name not in self._known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(self._known)}")
        return names


def parser() -> argparse.ArgumentParser:
    peers = [name for name, entry in ENTRIES.items() if entry.role is Role.PEER]
    reader = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="Only a full run with every contestant and step replaces benchmarks/RESULTS.md; any other one writes to "
        "benchmarks/.scratch.",
    )
    kind = reader.add_mutually_exclusive_group()
    kind.add_argument(
        "--growth", action="store_true", help="ADE alone with up to a million tasks pending or finished: takes long"
    )
    kind.add_argument("--quick", action="store_true", help="one small round with few peers: shows that it works")
    reader.add_argument("--only", choices=[store.value for store in Store], help="one store")
    reader.add_argument("--peers", type=_Names(peers), help=f"some of {', '.join(peers)}; or none. ADE always runs")
    reader.add_argument("--steps", type=_Names(list(TITLES)), help=f"some of {', '.join(TITLES)}")
    reader.add_argument("--rounds", type=int, help="3 in a full run, 1 in a quick one")
    return reader


if __name__ == "__main__":
    sys.exit(main())
