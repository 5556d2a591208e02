"""Runs the jobs of a plan, each in a process of its own that is bounded in time."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.charts import shown
from benchmarks.contestants import ENTRIES, Store
from benchmarks.contract import Options
from benchmarks.environments import HERE, SCRATCH, interpreter
from benchmarks.machine import probe
from benchmarks.outcomes import Outcome, Outcomes
from benchmarks.plan import Job, Plan, interleaved
from benchmarks.server import serving

DESCRIBE_SECONDS = 30.0


class MeasurementFailed(Exception):
    """The process of a measurement ended badly or did not end in time."""


def conduct(plan: Plan) -> Outcomes:
    """Run every job; a failed one is an outcome like any other."""
    jobs = list(interleaved(plan))
    outcomes: list[Outcome] = []
    for number, job in enumerate(jobs, start=1):
        outcome = _run_job(job, plan.timeout_seconds)
        outcomes.append(outcome)
        place = f"[{plan.store} {number}/{len(jobs)}] round {job.round + 1} {job.step.name} {job.contestant}"
        say(f"{place}: {_brief(outcome)}")
    return Outcomes(outcomes)


def configuration(contestant: str) -> Mapping[str, str]:
    """What the contestant says about itself; a failure is told in its place."""
    with _place(contestant) as (folder, server):
        try:
            answer = _measure(contestant, "describe", Options(folder=folder, server=server), DESCRIBE_SECONDS)
        except MeasurementFailed as failure:
            return {"failed": str(failure)}
    found: Mapping[str, str] = answer["configuration"]
    return found


def runs_folder() -> Path:
    folder = SCRATCH / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run_job(job: Job, timeout: float) -> Outcome:
    before = probe(runs_folder())
    answer: Mapping[str, Any]
    with _place(job.contestant) as (folder, server):
        try:
            answer = _measure(
                job.contestant, job.step.measure, job.step.options(job.contestant, folder, server), timeout
            )
        except MeasurementFailed as failure:
            answer = {"failure": str(failure)}
    after = probe(runs_folder())
    return Outcome(round=job.round, step=job.step.name, contestant=job.contestant, before=before, after=after, **answer)


@contextlib.contextmanager
def _place(contestant: str) -> Iterator[tuple[str, str]]:
    """An empty folder and, for a contestant that needs one, the URL of an empty server."""
    folder = tempfile.mkdtemp(dir=runs_folder())
    try:
        if ENTRIES[contestant].store is Store.REDIS:
            home = Path(folder) / "server"
            home.mkdir()
            with serving(home) as url:
                yield folder, url
        else:
            yield folder, ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(contestant: str, measure: str, options: Options, timeout: float) -> Mapping[str, Any]:
    python = interpreter(ENTRIES[contestant].requirements)
    command = [str(python), "-m", "benchmarks.run_one", contestant, measure, options.to_json()]
    pipe = subprocess.PIPE
    # A session of its own, so that a worker the measurement has started can be ended with it.
    with subprocess.Popen(
        command, cwd=HERE.parent, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as child:
        try:
            answer, complaints = child.communicate(timeout=timeout)
        except BaseException as error:
            _end_group(child.pid)
            if isinstance(error, subprocess.TimeoutExpired):
                raise MeasurementFailed(f"not finished after {timeout:.0f} s") from None
            raise
    if child.returncode != 0:
        _end_group(child.pid)
        say(complaints)
        raise MeasurementFailed(f"exit code {child.returncode}: {_last_words(complaints)}")
    parsed: Mapping[str, Any] = json.loads(answer.splitlines()[-1])
    return parsed


def _end_group(leader: int) -> None:
    """End the measurement and whatever it has started; nothing may be left of either."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _last_words(text: str) -> str:
    """The last line of a traceback without the places in files, which mean nothing to who reads the table."""
    lines = [line for line in text.strip().splitlines() if line and not line.startswith(" ")]
    return lines[-1][:160] if lines else "it said nothing"


def _brief(outcome: Outcome) -> str:
    if outcome.failure:
        return f"FAILED, {outcome.failure}"
    if outcome.not_offered:
        return f"n/a, {outcome.not_offered}"
    return ", ".join(f"{name} {shown(value)}" for name, value in outcome.figures.items())
