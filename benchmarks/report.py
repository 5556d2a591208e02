"""RESULTS.md and its charts, from the outcomes of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bars import ADE, BARS, judge
from benchmarks.charts import Bar, bar_chart, shown
from benchmarks.contestants import ENTRIES
from benchmarks.machine import TOLERANCE
from benchmarks.outcomes import Outcome, Outcomes
from benchmarks.plan import Plan, Step
from benchmarks.tables import markdown_table

FIGURE_TITLES = {
    "per_second": "tasks/s",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "cpu_percent": "CPU, % of one core",
    "resident_mb": "resident memory, MB",
}
SIZE_TITLES = {"tasks": "tasks a round", "samples": "samples a round"}

METHOD = """\
All contestants run on the same machine in the same run, in turns, each measurement in processes of its own
on an empty folder. A figure is the median of the rounds, with the lowest and the highest. The tasks do
nothing and have a 200-byte payload; they are acknowledged after they ran, and their result is stored where
the contestant can; one worker process; `synchronous=FULL` for all.

- **Enqueue**: until the call returns; opening the queue is not timed.
- **Drain**: tasks enqueued before; from the start of the worker's loop until the last one is acknowledged.
  ADE gets more tasks than the peers, whose look-up slows down as their table grows: the number favours them.
- **Pick-up**: from the enqueue call in one process to the first line of the function in another, about
  20 tasks/s at random distances.
- **Idle**: a worker that has run one task, then waits; with all its child processes.
- **Ratios** are taken round by round against the best rival of that round.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """All that the report tells."""

    plan: Plan
    contestants: Sequence[str]
    outcomes: Outcomes
    configurations: Mapping[str, Mapping[str, str]]
    machine: Mapping[str, str]
    date: str
    seconds: float


def write(run: Run, folder: Path) -> Path:
    """Write the page and its charts into the folder; return the page."""
    charts = folder / "charts"
    charts.mkdir(parents=True, exist_ok=True)
    for step in run.plan.steps:
        for figure in _figures(run, step):
            (charts / _chart_name(step, figure)).write_text(_chart(run, step, figure))
    page = folder / "RESULTS.md"
    page.write_text("\n\n".join(_sections(run)) + "\n")
    return page


def _sections(run: Run) -> list[str]:
    return [
        "# Benchmark results",
        f"Run of {run.date}, {run.plan.rounds} round(s), {run.seconds / 60:.1f} minutes. "
        "Repeat it with `python -m benchmarks`, or shorter with `python -m benchmarks --quick`.",
        "## Bars",
        _verdicts(run),
        "## How it is measured",
        METHOD.rstrip(),
        *(part for step in run.plan.steps for part in _step_sections(run, step)),
        "## Configuration",
        _configuration_table(run),
        "## Machine",
        markdown_table(["", ""], [[name, value] for name, value in run.machine.items()]),
        _machine_speed(run),
        *_failures(run.outcomes.failures()),
    ]


def _verdicts(run: Run) -> str:
    verdicts = [judge(bar, run.outcomes) for bar in BARS]
    rows = [[v.title, v.measured, v.bar, v.met, v.moonshot] for v in verdicts]
    return markdown_table(["measure", "ADE", "bar", "met?", "moonshot"], rows)


def _step_sections(run: Run, step: Step) -> list[str]:
    figures = _figures(run, step)
    charts = [f"![{step.title}, {FIGURE_TITLES[each]}](charts/{_chart_name(step, each)})" for each in figures]
    return [f"## {step.title}", _step_table(run, step, figures), *charts]


def _step_table(run: Run, step: Step, figures: Sequence[str]) -> str:
    """One row per contestant, with the number of tasks or samples last."""
    titles = [title for figure in figures for title in (FIGURE_TITLES[figure], "lowest to highest", "spread")]
    size = next((name for name in SIZE_TITLES if _first_value(run, step, name) is not None), None)
    header = ["contestant", *titles, *([SIZE_TITLES[size]] if size else [])]
    rows = [_contestant_row(run, step, figures, size, name) for name in run.contestants]
    return markdown_table(header, rows)


def _contestant_row(run: Run, step: Step, figures: Sequence[str], size: str | None, name: str) -> list[str]:
    row = [ENTRIES[name].title + _disturbance_mark(run, step, name)]
    for figure in figures:
        found = run.outcomes.summary(step.name, name, figure)
        if found is None:
            row += [run.outcomes.reason_for_nothing(step.name, name) or "not measured", "", ""]
        else:
            row += [shown(found.median), f"{shown(found.low)} to {shown(found.high)}", f"{found.spread:.0%}"]
    if size:
        taken = run.outcomes.summary(step.name, name, size)
        row.append(f"{taken.median:,.0f}" if taken else "")
    return row


def _disturbance_mark(run: Run, step: Step, name: str) -> str:
    disturbed = [o for o in run.outcomes.disturbed() if (o.step, o.contestant) == (step.name, name)]
    return f" ⚠ {len(disturbed)}" if disturbed else ""


def _configuration_table(run: Run) -> str:
    names = list(run.contestants)
    keys = list(dict.fromkeys(key for name in names for key in run.configurations[name]))
    rows = [[key, *(run.configurations[name].get(key, "") for name in names)] for key in keys]
    return markdown_table(["", *(ENTRIES[name].title for name in names)], rows)


def _machine_speed(run: Run) -> str:
    typical = run.outcomes.typical_speed()
    disturbed = run.outcomes.disturbed()
    text = (
        f"Its speed was probed before and after each of the {len(run.outcomes.all)} measurements: a fixed "
        f"loop took {typical.cpu_ms:.1f} ms, a durable write of 4 KiB {typical.sync_ms:.3f} ms (medians). "
        f"Around {len(disturbed)} of them a probe was more than {TOLERANCE:.0%} off; ⚠ marks them above."
    )
    if not disturbed:
        return text
    rows = [_probe_row(outcome) for outcome in disturbed]
    header = ["round", "measure", "contestant", "loop before / after, ms", "write before / after, ms"]
    return f"{text}\n\n{markdown_table(header, rows)}"


def _probe_row(outcome: Outcome) -> list[str]:
    before, after = outcome.before, outcome.after
    return [
        str(outcome.round + 1),
        outcome.step,
        ENTRIES[outcome.contestant].title,
        f"{before.cpu_ms:.1f} / {after.cpu_ms:.1f}",
        f"{before.sync_ms:.3f} / {after.sync_ms:.3f}",
    ]


def _failures(failures: Sequence[Outcome]) -> list[str]:
    if not failures:
        return []
    rows = [[str(o.round + 1), o.step, ENTRIES[o.contestant].title, o.failure or ""] for o in failures]
    return ["## Failures", markdown_table(["round", "measure", "contestant", "what happened"], rows)]


def _chart(run: Run, step: Step, figure: str) -> str:
    bars = [
        Bar(
            ENTRIES[name].title,
            run.outcomes.summary(step.name, name, figure),
            own=name == ADE,
            note=run.outcomes.reason_for_nothing(step.name, name) or "not measured",
        )
        for name in run.contestants
    ]
    return bar_chart(step.title, FIGURE_TITLES[figure], bars)


def _chart_name(step: Step, figure: str) -> str:
    return f"{step.name}-{figure}.svg"


def _figures(run: Run, step: Step) -> list[str]:
    """The figures that anybody has in this step, in the order of their titles."""
    return [figure for figure in FIGURE_TITLES if _first_value(run, step, figure) is not None]


def _first_value(run: Run, step: Step, figure: str) -> float | None:
    found = (run.outcomes.summary(step.name, name, figure) for name in run.contestants)
    return next((summary.median for summary in found if summary), None)
