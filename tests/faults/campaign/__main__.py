"""`python -m tests.faults.campaign [--seed N]`: exits with 0 when everything held, with 1 when something did not."""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.faults.campaign.course import run
from tests.faults.campaign.plan import SQLITE, STORES, Plan
from tests.faults.campaign.report import shown


def main() -> int:
    plan = _plan()
    print(f"seed {plan.seed} on {plan.store}: {plan.kills} kills, {plan.in_flight} tasks in flight", flush=True)
    print(f"files in {plan.folder}", flush=True)
    verdict = asyncio.run(run(plan, lambda line: print(line, flush=True)))
    print(shown(verdict))
    if verdict.holds:
        print(f"all of it holds (seed {plan.seed})")
        shutil.rmtree(plan.folder)
        return 0
    print(f"NOT all of it holds; to try again: --seed {plan.seed}. The files are kept in {plan.folder}")
    return 1


def _plan() -> Plan:
    defaults = Plan(folder="", seed=0)
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier campaign")
    parser.add_argument("--store", choices=STORES, default=SQLITE, help="a file, or a server that is started for it")
    parser.add_argument("--kills", type=int, default=defaults.kills)
    parser.add_argument("--in-flight", type=int, default=defaults.in_flight)
    parser.add_argument("--workers", type=int, default=defaults.workers)
    parser.add_argument("--producers", type=int, default=defaults.producers)
    parser.add_argument("--kills-per-s", type=float, default=defaults.kills_per_s)
    parser.add_argument("--folder", type=Path, default=None, help="where to put the files; must be new or empty")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="ade-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        parser.error(f"{folder} is not empty")
    return Plan(
        folder=str(folder.absolute()),
        seed=random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed,
        store=given.store,
        kills=given.kills,
        in_flight=given.in_flight,
        workers=given.workers,
        producers=given.producers,
        kills_per_s=given.kills_per_s,
    )


if __name__ == "__main__":
    sys.exit(main())
