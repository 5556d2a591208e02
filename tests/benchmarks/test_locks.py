"""How locks are measured: what is said about speed and fairness must be right before any figure can be."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.bars import bars_of
from benchmarks.contestants import ENTRIES, Store, Subject, load, load_locks
from benchmarks.contract import NotOffered, Options
from benchmarks.judging import judge
from benchmarks.lock_measures import LOCK_MEASURES
from benchmarks.machine import Speed
from benchmarks.outcomes import Outcome, Outcomes
from benchmarks.plan import FULL, QUICK, Plan, interleaved
from benchmarks.report import FIGURE_TITLES, SIZE_TITLES, Part, Run, write
from benchmarks.server import serving
from benchmarks.turns import Fight, Turn, jain_index

STEADY = Speed(cpu_ms=20.0, sync_ms=0.2)
MS = 1_000_000
OWN_LOCKS = [name for name, entry in ENTRIES.items() if entry.module.startswith("ade_locks:")]


def fight(*turns: tuple[int, int, int, int], agents: int = 3, seconds: float = 1.0) -> Fight:
    """Turns as (agent, asked, got, left) in milliseconds; got 0 is never."""
    made = [Turn(agent, asked * MS, got * MS, left * MS) for agent, asked, got, left in turns]
    return Fight(made, began=0, ended=int(seconds * 1e9), agents=agents)


def test_first_come_first_served_overtakes_nobody() -> None:
    seen = fight((0, 1, 2, 3), (1, 2, 4, 5), (2, 3, 6, 7), (0, 4, 8, 9))

    assert seen.most_overtaken() == 0
    assert seen.handovers() == 3


def test_whoever_asked_later_and_came_in_earlier_has_overtaken() -> None:
    seen = fight((0, 1, 2, 3), (1, 2, 50, 51), (2, 3, 4, 5), (0, 4, 6, 7), (2, 6, 8, 9))

    assert seen.most_overtaken() == 3, "agent 2 twice and agent 0 once, past agent 1"


def test_one_who_still_waits_at_the_end_was_overtaken_and_has_waited_so_far() -> None:
    starved = fight((1, 1, 0, 0), (0, 2, 3, 4), (0, 5, 6, 7), (0, 8, 9, 10), (2, 900, 1100, 1101))

    assert starved.most_overtaken() == 3
    assert max(starved.waits_ms()) == 999.0
    assert starved.turns_of_agents() == [3, 0, 0], "what came after the end is no turn"
    assert starved.figures()["least_turns"] == 0


def test_taking_it_again_at_once_hands_nothing_over() -> None:
    seen = fight((0, 1, 2, 3), (0, 4, 5, 6), (0, 7, 8, 9), (1, 1, 10, 11))

    assert seen.figures()["handovers_per_second"] == 1
    assert seen.figures()["turns"] == 4


def test_two_who_have_it_at_the_same_time_are_noticed() -> None:
    assert fight((0, 1, 2, 5), (1, 1, 5, 9)).is_exclusive()
    assert not fight((0, 1, 2, 5), (1, 1, 4, 9)).is_exclusive()


def test_waits_are_told_by_their_99th_percentile_and_the_longest() -> None:
    turns = [(0, at * 5, at * 5 + 1, at * 5 + 2) for at in range(99)]
    figures = fight(*turns, (1, 0, 600, 601)).figures()

    assert (figures["wait_p99_ms"], figures["wait_max_ms"]) == (1.0, 600.0)


@pytest.mark.parametrize(("shares", "expected"), [([5, 5, 5, 5], 1.0), ([8, 0, 0, 0], 0.25), ([0, 0], 0.0)])
def test_jains_index_tells_how_evenly_the_turns_went_round(shares: list[float], expected: float) -> None:
    assert jain_index(shares) == expected


@pytest.mark.parametrize("plan", [*FULL, *QUICK], ids=lambda plan: f"{plan.store}-{plan.rounds}")
def test_locks_are_measured_by_those_who_have_some_and_by_nobody_else(plan: Plan) -> None:
    for job in interleaved(plan):
        assert job.step.name.startswith("locks_") == (ENTRIES[job.contestant].subject is Subject.LOCKS)
    takers = {job.contestant for job in interleaved(plan) if job.step.name == "locks_contended"}
    assert takers & set(OWN_LOCKS)
    if plan.store is Store.REDIS:
        assert "redis_py" in takers


def test_in_each_round_somebody_else_fights_first() -> None:
    [plan] = (plan for plan in FULL if plan.store is Store.REDIS)
    firsts = [
        next(job.contestant for job in interleaved(plan) if (job.round, job.step.name) == (number, "locks_contended"))
        for number in range(plan.rounds)
    ]

    assert sorted(firsts) == ["ade_redis_locks", "pottery", "redis_py"]


def test_a_queue_is_not_taken_for_a_lock() -> None:
    with pytest.raises(ValueError, match="about tasks"):
        load_locks("ade")
    with pytest.raises(ValueError, match="about locks"):
        load("ade_locks")


@pytest.mark.parametrize("name", OWN_LOCKS)
def test_one_agent_takes_and_releases_as_often_as_it_can(name: str, tmp_path: Path) -> None:
    contestant, redis = load_locks(name), ENTRIES[name].store is Store.REDIS
    with serving(tmp_path) as url:
        options = Options(folder=str(tmp_path), server=url if redis else "", seconds=0.05)
        assert contestant.describe(options.place)["version"]
        figures = LOCK_MEASURES["locks_uncontended"](name, contestant, options)

    assert figures["pairs"] > 0
    assert ("server_us_per_turn" in figures) == redis
    assert set(figures) <= {*FIGURE_TITLES, *SIZE_TITLES}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ade_locks", "ade_redis_locks"])
def test_agents_of_two_processes_fight_and_all_get_their_turns(name: str, tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        server = url if ENTRIES[name].store is Store.REDIS else ""
        options = Options(folder=str(tmp_path), server=server, seconds=1.0, agents=6, processes=2)
        figures = LOCK_MEASURES["locks_contended"](name, load_locks(name), options)

    assert set(figures) <= {*FIGURE_TITLES, *SIZE_TITLES}
    assert figures["handovers_per_second"] > 0
    assert figures["least_turns"] > 0
    assert figures["overtaken"] <= 72


def test_a_lock_whose_calls_block_has_no_part_in_a_fight_of_coroutines(tmp_path: Path) -> None:
    name = "ade_redis_locks_blocking"
    with pytest.raises(NotOffered, match="block"):
        LOCK_MEASURES["locks_contended"](name, load_locks(name), Options(folder=str(tmp_path)))


def contended(name: str, handovers: float, overtaken: float) -> Outcome:
    figures = {"handovers_per_second": handovers, "overtaken": overtaken, "jain": 0.9, "turns": 5000.0}
    return outcome(name, "locks_contended", figures)


def outcome(name: str, step: str, figures: Mapping[str, float]) -> Outcome:
    return Outcome(round=0, step=step, contestant=name, before=STEADY, after=STEADY, figures=figures)


def test_the_page_judges_locks_and_keeps_their_configuration_apart(tmp_path: Path) -> None:
    [plan] = (plan for plan in QUICK if plan.store is Store.REDIS)
    outcomes = Outcomes(
        [
            contended("ade_redis_locks", 1500, 90),
            contended("redis_py", 70, 2000),
            outcome("ade_redis_locks", "locks_uncontended", {"pairs_per_second": 1200}),
            outcome("redis_py", "locks_uncontended", {"pairs_per_second": 1000}),
        ]
    )
    told = {name: {"version": f"{name} 1.0"} for name in plan.contestants}
    page = write(Run([Part(plan, outcomes, told)], machine={}, date="2026-11-15", seconds=1), tmp_path).read_text()

    verdicts = {verdict.title: verdict.met for verdict in (judge(bar, outcomes) for bar in bars_of(plan))}
    assert verdicts["Locks, one agent, against redis-py"] == "met"
    assert verdicts["Locks, 50 agents want one, hand-overs"] == "met"
    assert verdicts["Locks, 50 agents want one, overtaken at most"] == "not met"
    queues, locks = page.split("### Redis: configuration of the locks")
    assert "redis_py 1.0" not in queues
    assert "saq 1.0" not in locks
    assert "redis-locks_contended-handovers_per_second.svg" in page
    assert "redis-locks_contended-jain" not in page
