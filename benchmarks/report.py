"""RESULTS.md and its charts, from the outcomes of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bars import bars_of
from benchmarks.charts import Bar, bar_chart, shown
from benchmarks.contestants import ENTRIES, Store, Subject
from benchmarks.judging import judge
from benchmarks.machine import TOLERANCE
from benchmarks.outcomes import Outcome, Outcomes
from benchmarks.plan import Plan, Step
from benchmarks.tables import markdown_table

FIGURE_TITLES = {
    "per_second": "tasks/s",
    "worker_us": "worker CPU per task, us",
    "server_us": "server CPU per task, us",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "cpu_percent": "CPU, % of one core",
    "resident_mb": "resident memory, MB",
    "pairs_per_second": "taken and released/s",
    "handovers_per_second": "hand-overs/s",
    "overtaken": "overtaken at most",
    "wait_p99_ms": "wait p99, ms",
    "wait_max_ms": "longest wait, ms",
    "jain": "Jain's index of the turns",
    "least_turns": "turns of who had least",
    "most_turns": "turns of who had most",
    "server_us_per_turn": "server CPU per turn, us",
    "requests_per_second": "requests/s",
    "half_p50_ms": "p50 at half load, ms",
    "half_p99_ms": "p99 at half load, ms",
    "request_us": "CPU per request, us",
    "store_us": "CPU of Redis per request, us",
    "deliveries_per_second": "events delivered/s",
    "lost": "events lost",
    "duplicates": "events twice",
    "delay_p50_ms": "delay p50, ms",
    "delay_p99_ms": "delay p99, ms",
    "before_mb": "memory before, MB",
    "subscribed_mb": "with subscribers, MB",
    "loaded_mb": "while events come, MB",
    "after_mb": "when they have gone, MB",
    "load_percent": "CPU of who asks, %",
}
WITHOUT_CHART = ("jain", "least_turns", "most_turns", "load_percent", "lost", "duplicates", "before_mb", "after_mb")
SIZE_TITLES = {
    "tasks": "tasks a round",
    "samples": "samples a round",
    "pairs": "pairs a round",
    "turns": "turns a round",
    "requests": "requests a round",
    "subscribers": "subscribers",
}
STORE_TITLES = {Store.SQLITE: "SQLite", Store.REDIS: "Redis"}
CONFIGURATION_TITLES = {Subject.TASKS: "", Subject.LOCKS: " of the locks", Subject.HTTP: " of the HTTP servers"}

METHOD = """\
All contestants run on the same machine in the same run, in turns, each measurement in processes of its own
on an empty folder, or on a server of its own that was just started. A figure is the median of the rounds, with
the lowest, the highest and the distance between them in brackets. The tasks do nothing and have a 200-byte payload;
they are acknowledged after they ran, and their result is stored where the contestant can; one worker process unless
said; `synchronous=FULL` on SQLite for all that can be told so.

- **Enqueue**: until the call returns; opening the queue is not timed.
- **Drain**: tasks enqueued before; from the first start of a function until the last task is acknowledged.
  ADE gets more tasks than the peers, and slow peers get fewer.
- **Worker CPU**: of the worker and all its child processes, over the same time.
- **Server CPU**: what the server itself used, by its own account. The whole life of a task is its enqueueing
  and its draining together.
- **Drain with many pending or finished** (`--growth`): the rate of the first 10,000 tasks, once the server has
  rewritten its file after the filling.
- **Pick-up**: from the enqueue call in one process to the first line of the function in another, about
  20 tasks/s at random distances.
- **Idle**: a worker that has run one task, then waits; with all its child processes.
- **Locks**: taken and released on entering and leaving an empty block, each time a new lock object on the same name, as
  the documentation of each library shows it. *Alone*: one agent; the blocking form stands beside the other libraries'.
  *Contended*: coroutines of two processes that ask again as soon as they have let go. A hand-over goes to another
  agent: who takes the lock again at once hands nothing over. *Overtaken* counts those who asked later and had the
  lock earlier, by the agents' own clocks. Who waits at the end counts with its wait so far. That nobody has the lock
  at the same time as another one is checked.
- **HTTP**: the server on a core of its own; who asks on another, with Redis where it is. 16 connections that are kept
  open; bodies that are all different; 10,000 tasks to list from. *Requests/s*: everybody asks again as soon as he is
  answered. *At half load*: half as many, sent by the clock at random distances; a wait counts from the moment that was
  planned. *Bare* is uvicorn with an app that reads the same form, answers a record of the same size, and checks and
  stores nothing; on ADE's queue it stores the task first. That every accepted task was stored is checked.
- **HTTP events**: subscribers to all events, in one process; tasks come from a second process and run in a third. What
  each was given is compared with the log: nothing may be missing, come twice or out of order. The delay, of ten of
  them, counts from the moment that an event names, shortly before its commit.
- **Ratios** are taken round by round against the best rival of that round.
- **The floor** is no peer: it is the smallest honest program of ADE's design (batched transitions with record, fence
  and event, nothing else), and shows how much of the possible speed ADE reaches.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """What came out on one store; `absent` says why a contestant could not even start."""

    plan: Plan
    outcomes: Outcomes
    configurations: Mapping[str, Mapping[str, str]]
    absent: Mapping[str, str] = field(default_factory=dict)

    def reason_for_nothing(self, step: Step, name: str) -> str:
        if not step.takes(name):
            return "not asked"
        return self.absent.get(name) or self.outcomes.reason_for_nothing(step.name, name) or "not measured"


@dataclass(frozen=True, slots=True)
class Run:
    """All that the report tells."""

    parts: Sequence[Part]
    machine: Mapping[str, str]
    date: str
    seconds: float


def write(run: Run, folder: Path) -> Path:
    """Write the page and its charts into the folder; return the page."""
    charts = folder / "charts"
    charts.mkdir(parents=True, exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    for part in run.parts:
        for step in part.plan.steps:
            for figure in _charted(part, step):
                (charts / _chart_name(part, step, figure)).write_text(_chart(part, step, figure))
    page = folder / "RESULTS.md"
    page.write_text("\n\n".join(_sections(run)) + "\n")
    return page


def _sections(run: Run) -> list[str]:
    rounds = max(part.plan.rounds for part in run.parts)
    return [
        "# Benchmark results",
        f"Run of {run.date}, {rounds} round(s), {run.seconds / 60:.1f} minutes. "
        "Repeat it with `python -m benchmarks`, or shorter with `python -m benchmarks --quick`.",
        "## How it is measured",
        METHOD.rstrip(),
        *(section for part in run.parts for section in _part_sections(part)),
        "## Machine",
        markdown_table(["", ""], [[name, value] for name, value in run.machine.items()]),
        *(_machine_speed(part) for part in run.parts if part.outcomes.all),
    ]


def _part_sections(part: Part) -> list[str]:
    store = STORE_TITLES[part.plan.store]
    return [
        f"## {store}",
        f"### {store}: bars",
        _verdicts(part),
        *(section for step in part.plan.steps for section in _step_sections(part, step)),
        *_configurations(store, part),
        *_failures(store, part),
    ]


def _verdicts(part: Part) -> str:
    verdicts = [judge(bar, part.outcomes) for bar in bars_of(part.plan)]
    rows = [[v.title, v.measured, v.bar, v.met, v.moonshot] for v in verdicts]
    return markdown_table(["measure", "ADE", "bar", "met?", "moonshot"], rows)


def _step_sections(part: Part, step: Step) -> list[str]:
    figures = _figures(part, step)
    charts = [
        f"![{step.title}, {FIGURE_TITLES[each]}](charts/{_chart_name(part, step, each)})"
        for each in _charted(part, step)
    ]
    return [f"### {STORE_TITLES[part.plan.store]}: {step.title}", _step_table(part, step, figures), *charts]


def _step_table(part: Part, step: Step, figures: Sequence[str]) -> str:
    """One row per contestant, with the number of tasks or samples last."""
    size = next((name for name in SIZE_TITLES if _first_value(part, step, name) is not None), None)
    titles = [FIGURE_TITLES[figure] for figure in figures] or ["figures"]
    header = ["contestant", *titles, *([SIZE_TITLES[size]] if size else [])]
    return markdown_table(header, [_row(part, step, figures, size, name) for name in _takers(part, step)])


def _row(part: Part, step: Step, figures: Sequence[str], size: str | None, name: str) -> list[str]:
    row = [ENTRIES[name].title + _disturbance_mark(part, step, name)]
    for figure in figures or [""]:
        found = part.outcomes.summary(step.name, name, figure)
        if found is None:
            row.append(part.reason_for_nothing(step, name))
        else:
            row.append(f"{shown(found.median)} ({shown(found.low)} to {shown(found.high)}, {found.spread:.0%})")
    if size:
        taken = part.outcomes.summary(step.name, name, size)
        row.append(f"{taken.median:,.0f}" if taken else "")
    return row


def _disturbance_mark(part: Part, step: Step, name: str) -> str:
    disturbed = [o for o in part.outcomes.disturbed() if (o.step, o.contestant) == (step.name, name)]
    return f" ⚠ {len(disturbed)}" if disturbed else ""


def _configurations(store: str, part: Part) -> list[str]:
    sections = []
    for subject, addition in CONFIGURATION_TITLES.items():
        if any(ENTRIES[name].subject is subject for name in part.plan.contestants):
            sections += [f"### {store}: configuration{addition}", _configuration_table(part, subject)]
    return sections


def _configuration_table(part: Part, subject: Subject) -> str:
    told = {name: facts for name, facts in part.configurations.items() if ENTRIES[name].subject is subject}
    keys = list(dict.fromkeys(key for facts in told.values() for key in facts))
    rows = [[ENTRIES[name].title, *(facts.get(key, "") for key in keys)] for name, facts in told.items()]
    absent = {name: reason for name, reason in part.absent.items() if ENTRIES[name].subject is subject and keys}
    rows += [[ENTRIES[name].title, reason, *[""] * (len(keys) - 1)] for name, reason in absent.items()]
    return markdown_table(["", *keys], rows)


def _machine_speed(part: Part) -> str:
    typical = part.outcomes.typical_speed()
    disturbed = part.outcomes.disturbed()
    text = (
        f"{STORE_TITLES[part.plan.store]}: its speed was probed before and after each of the "
        f"{len(part.outcomes.all)} measurements: a fixed loop took {typical.cpu_ms:.1f} ms, a durable write of 4 KiB "
        f"{typical.sync_ms:.3f} ms (medians). "
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
        *_place(outcome),
        f"{before.cpu_ms:.1f} / {after.cpu_ms:.1f}",
        f"{before.sync_ms:.3f} / {after.sync_ms:.3f}",
    ]


def _place(outcome: Outcome) -> list[str]:
    return [str(outcome.round + 1), outcome.step, ENTRIES[outcome.contestant].title]


def _failures(store: str, part: Part) -> list[str]:
    rows = [[*_place(o), o.failure or ""] for o in part.outcomes.failures()]
    rows += [["", "all", ENTRIES[name].title, reason] for name, reason in part.absent.items()]
    if not rows:
        return []
    return [f"### {store}: failures", markdown_table(["round", "measure", "contestant", "what happened"], rows)]


def _chart(part: Part, step: Step, figure: str) -> str:
    bars = [
        Bar(
            ENTRIES[name].title,
            part.outcomes.summary(step.name, name, figure),
            kind=ENTRIES[name].role.value,
            note=part.reason_for_nothing(step, name),
        )
        for name in _takers(part, step)
    ]
    return bar_chart(f"{STORE_TITLES[part.plan.store]}: {step.title}", FIGURE_TITLES[figure], bars)


def _takers(part: Part, step: Step) -> list[str]:
    return [name for name in part.plan.contestants if step.takes(name)]


def _chart_name(part: Part, step: Step, figure: str) -> str:
    return f"{part.plan.store}-{step.name}-{figure}.svg"


def _figures(part: Part, step: Step) -> list[str]:
    """The figures that anybody has in this step, in the order of their titles."""
    return [figure for figure in FIGURE_TITLES if _first_value(part, step, figure) is not None]


def _charted(part: Part, step: Step) -> list[str]:
    return [figure for figure in _figures(part, step) if figure not in WITHOUT_CHART]


def _first_value(part: Part, step: Step, figure: str) -> float | None:
    found = (part.outcomes.summary(step.name, name, figure) for name in part.plan.contestants)
    return next((summary.median for summary in found if summary), None)
