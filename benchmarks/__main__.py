"""`python -m benchmarks [--quick] [--contestants a,b]`: measure, judge, write the results."""

import argparse
import datetime
import sys
import time
from collections.abc import Sequence

from benchmarks import machine, report
from benchmarks.bars import BARS, judge
from benchmarks.conduct import conduct, configuration, say
from benchmarks.contestants import ENTRIES
from benchmarks.environments import HERE, SCRATCH, interpreter
from benchmarks.plan import FULL, QUICK


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if any measurement failed; a bar that is not met is a result, not a failure."""
    parsed = _parser().parse_args(arguments)
    contestants = parsed.contestants.split(",")
    plan = QUICK if parsed.quick else FULL

    began = time.monotonic()
    for name in contestants:
        interpreter(ENTRIES[name].requirements)
    say(f"environments ready after {time.monotonic() - began:.1f} s")

    run = report.Run(
        plan=plan,
        contestants=contestants,
        configurations={name: configuration(name) for name in contestants},
        outcomes=conduct(plan, contestants),
        machine=machine.describe(),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=time.monotonic() - began,
    )
    failed = bool(run.outcomes.failures()) or any("failed" in run.configurations[name] for name in contestants)
    # A part of the picture, or a broken one, must not replace the whole one.
    whole = not parsed.quick and not failed and set(contestants) == set(ENTRIES)
    page = report.write(run, HERE if whole else SCRATCH)
    for bar in BARS:
        verdict = judge(bar, run.outcomes)
        say(f"{verdict.title}: {verdict.measured}, bar {verdict.bar} {verdict.met}")
    say(f"written to {page}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small round; results go to benchmarks/.scratch")
    parser.add_argument(
        "--contestants",
        default=",".join(ENTRIES),
        help="some of: %(default)s; a partial or failed run also writes to benchmarks/.scratch",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
