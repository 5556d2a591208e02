"""The parts of the benchmark that only compute: what they say must be right before any figure can be."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.__main__ import chosen, parser
from benchmarks.bars import BARS
from benchmarks.charts import Bar, bar_chart, shown
from benchmarks.contestants import ENTRIES, Store, Subject, load
from benchmarks.contract import Options, Place, payload, payloads
from benchmarks.environments import HERE, PEERS
from benchmarks.figures import deviation, percentile, summarise
from benchmarks.http_measures import HTTP_MEASURES
from benchmarks.judging import LimitBar, RatioBar, Score, judge
from benchmarks.lock_measures import LOCK_MEASURES
from benchmarks.machine import Speed
from benchmarks.measures import MEASURES
from benchmarks.outcomes import Outcome, Outcomes
from benchmarks.plan import FULL, GROWTH, QUICK, Plan, interleaved
from benchmarks.producing import producer_of, random_moments
from benchmarks.report import Part, Run, write
from benchmarks.server import serving
from benchmarks.starts import Starts
from benchmarks.tables import markdown_table
from benchmarks.wire import Wire

STEADY = Speed(cpu_ms=20.0, sync_ms=0.2)
KNOWN_MEASURES = {Subject.TASKS: MEASURES, Subject.LOCKS: LOCK_MEASURES, Subject.HTTP: HTTP_MEASURES}
KINDS = {Subject.TASKS: "Contestant", Subject.LOCKS: "LockContestant", Subject.HTTP: "HttpContestant"}
SVG = "{http://www.w3.org/2000/svg}"


def outcome(
    contestant: str,
    figures: Mapping[str, float],
    *,
    step: str = "drain",
    number: int = 0,
    after: Speed = STEADY,
) -> Outcome:
    return Outcome(round=number, step=step, contestant=contestant, before=STEADY, after=after, figures=figures)


def rates(contestant: str, *values: float, step: str = "drain") -> list[Outcome]:
    """One outcome per round."""
    return [outcome(contestant, {"per_second": value}, step=step, number=n) for n, value in enumerate(values)]


def test_a_summary_is_the_median_with_its_extremes() -> None:
    summary = summarise([30.0, 10.0, 20.0])

    assert (summary.median, summary.low, summary.high, summary.rounds) == (20.0, 10.0, 30.0, 3)
    assert summary.spread == 1.0


def test_a_summary_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        summarise([])


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.0), (99, 99.0), (100, 100.0), (0, 1.0)])
def test_a_percentile_is_a_value_that_was_seen(percent: float, expected: float) -> None:
    values = [float(value) for value in range(100, 0, -1)]

    assert percentile(values, percent) == expected


def test_the_99th_percentile_of_few_samples_is_the_worst_one() -> None:
    assert percentile([1.0, 2.0, 50.0], 99) == 50.0


def test_deviation_counts_both_ways() -> None:
    assert deviation(15.0, 20.0) == deviation(25.0, 20.0) == 0.25


def test_a_table_lines_up_and_escapes_what_would_break_it() -> None:
    table = markdown_table(["name", "rate"], [["a|b", "1"], ["long name", "12,000"]])

    assert table.splitlines() == [
        "| name      | rate   |",
        "| --------- | ------ |",
        "| a\\|b      | 1      |",
        "| long name | 12,000 |",
    ]


def test_a_row_that_does_not_fit_its_header_is_refused() -> None:
    with pytest.raises(ValueError, match="as many cells"):
        markdown_table(["name", "rate"], [["only one"]])


def test_a_chart_draws_medians_to_scale_and_stays_inside_its_frame() -> None:
    chart = bar_chart(
        "Speed <b>",
        "tasks/s",
        [
            Bar("ADE", summarise([100.0, 200.0, 400.0]), kind="own"),
            Bar("peer", summarise([50.0])),
            Bar("other", None, note="n/a & why"),
        ],
    )
    drawing = ElementTree.fromstring(chart)

    own, peer = drawing.findall(f"{SVG}rect")
    assert float(own.attrib["width"]) == pytest.approx(4 * float(peer.attrib["width"]), abs=0.2)
    ends = [float(line.attrib["x2"]) for line in drawing.findall(f"{SVG}line")]
    assert max(ends) <= float(drawing.attrib["width"])
    texts = [text.text for text in drawing.findall(f"{SVG}text")]
    assert "Speed <b> (tasks/s)" in texts
    assert "n/a & why" in texts


def test_a_chart_without_any_figure_is_still_a_drawing() -> None:
    drawing = ElementTree.fromstring(bar_chart("Nothing", "ms", [Bar("ADE", None, note="failed")]))

    assert drawing.findall(f"{SVG}rect") == []


def test_large_numbers_are_shown_whole_and_small_ones_with_digits() -> None:
    assert [shown(value) for value in (12345.6, 100, 99.123, 0.5)] == ["12,346", "100", "99.12", "0.50"]


def rate_of(contestant: str) -> Score:
    return Score(contestant, [("drain", "per_second")])


def test_a_ratio_compares_within_each_round_with_the_best_rival_there() -> None:
    bar = RatioBar(
        title="Drain",
        own=rate_of("ade"),
        rivals=[rate_of("huey"), rate_of("litequeue")],
        rivals_title="the best peer",
        bar=6,
        moonshot=12,
    )
    # Round two is slow for everybody: the ratio does not suffer.
    peers = [*rates("huey", 100, 50, 80), *rates("litequeue", 90, 20, 100)]

    verdict = judge(bar, Outcomes([*rates("ade", 700, 350, 900), *peers]))

    assert verdict.measured == "7.00x (7.00 to 9.00)"
    assert (verdict.met, verdict.moonshot) == ("met", "≥ 12x: not met")


def test_a_ratio_skips_rounds_without_a_rival_and_says_when_there_is_none() -> None:
    bar = RatioBar(title="Drain", own=rate_of("ade"), rivals=[rate_of("huey")], rivals_title="Huey", bar=6)

    assert judge(bar, Outcomes([*rates("ade", 500, 900), *rates("huey", 100)])).met == "not met"
    assert judge(bar, Outcomes(rates("ade", 500))).met == "not measured"


def test_where_less_is_better_the_best_rival_is_the_lowest_and_the_second_best_the_next() -> None:
    rivals = [rate_of("saq"), rate_of("arq"), rate_of("rq")]
    found = Outcomes([*rates("ade_redis", 3), *rates("saq", 2), *rates("arq", 4), *rates("rq", 9)])

    def verdict(rank: int) -> str:
        bar = RatioBar(
            title="Pick-up",
            own=rate_of("ade_redis"),
            rivals=rivals,
            rivals_title="a peer",
            bar=1,
            less_is_better=True,
            rank=rank,
        )
        told = judge(bar, found)
        return f"{told.measured.split()[0]} {told.met}"

    assert [verdict(1), verdict(2)] == ["1.50x not met", "0.75x met"]


def test_a_score_of_several_figures_adds_up_the_rounds_that_have_them_all() -> None:
    found = [
        outcome("saq", {"server_us": 30.0}, step="enqueue_one_by_one"),
        outcome("saq", {"server_us": 80.0}, step="drain"),
        outcome("saq", {"server_us": 90.0}, step="drain", number=1),
    ]
    life = Score("saq", [("enqueue_one_by_one", "server_us"), ("drain", "server_us")])

    assert life.by_round(Outcomes(found)) == {0: 110.0}


def test_a_limit_is_met_by_its_median() -> None:
    bar = LimitBar(title="Pick-up", own=Score("ade", [("pickup", "p50_ms")]), unit="ms", bar=3, moonshot=1.5)
    found = [outcome("ade", {"p50_ms": p50}, step="pickup", number=n) for n, p50 in enumerate((1.0, 2.0, 9.0))]

    verdict = judge(bar, Outcomes(found))

    assert (verdict.measured, verdict.met) == ("2.00 ms (1.00 to 9.00)", "met")
    assert verdict.moonshot == "≤ 1.5 ms: not met"


@pytest.mark.parametrize("store", list(Store))
def test_every_bar_asks_for_figures_that_the_plan_of_its_store_has(store: Store) -> None:
    steps = {step.name: step for plan in (*FULL, *GROWTH) if plan.store is store for step in plan.steps}

    for bar in BARS[store]:
        scores = [bar.own, *(bar.rivals if isinstance(bar, RatioBar) else [])]
        for score in scores:
            assert ENTRIES[score.contestant].store is store
            assert all(steps[step].takes(score.contestant) for step, _ in score.parts)


def test_a_measurement_on_a_machine_that_slowed_down_is_flagged() -> None:
    calm = [outcome("ade", {}) for _ in range(3)]
    slow_loop = outcome("huey", {}, after=Speed(cpu_ms=26.0, sync_ms=0.2))
    slow_disk = outcome("huey", {}, after=Speed(cpu_ms=20.0, sync_ms=0.1))

    assert Outcomes([*calm, slow_loop, slow_disk]).disturbed() == [slow_loop, slow_disk]


@pytest.mark.parametrize(
    "plan", [*FULL, *GROWTH, *QUICK], ids=lambda plan: f"{plan.store}-{plan.steps[0].name}-{plan.rounds}"
)
def test_every_contestant_gets_its_turn_in_every_round_of_the_steps_it_takes(plan: Plan) -> None:
    jobs = list(interleaved(plan))
    turns = [(job.round, job.step.name, job.contestant) for job in jobs]

    assert len(set(turns)) == len(turns)
    assert len(turns) == plan.rounds * sum(step.takes(name) for step in plan.steps for name in plan.contestants)
    firsts = {next(job.contestant for job in jobs if job.round == number) for number in range(plan.rounds)}
    assert len(firsts) == plan.rounds  # another one begins each time


@pytest.mark.parametrize(
    "plan", [*FULL, *GROWTH, *QUICK], ids=lambda plan: f"{plan.store}-{plan.steps[0].name}-{plan.rounds}"
)
def test_a_step_names_a_measure_and_its_options_survive_the_way_to_the_process(plan: Plan) -> None:
    for step in plan.steps:
        assert step.measure in KNOWN_MEASURES[step.subject]
        options = step.options("ade", "/somewhere", "redis://127.0.0.1:1")
        assert Options.from_json(options.to_json()) == options


def test_some_peers_are_chosen_by_name_and_ade_and_the_floor_always_run() -> None:
    [plan] = chosen(parser().parse_args(["--only", "redis", "--peers", "saq,huey", "--steps", "drain"]))

    assert plan.contestants == ["ade_redis", "saq", "huey_redis", "floor_redis"], (
        "and who takes none of the steps is out"
    )
    assert [step.name for step in plan.steps] == ["drain"]


def test_a_peer_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--peers", "nobody"])
    assert "'nobody' is none of" in capsys.readouterr().err


def test_payloads_have_the_size_asked_for_and_tell_their_number() -> None:
    texts = payloads(Options(folder="", tasks=12, payload_bytes=200))

    assert {len(text) for text in texts} == {200}
    assert [int(text[:8]) for text in texts] == list(range(12))


def test_moments_come_at_the_rate_asked_for_and_are_repeatable() -> None:
    moments = random_moments(rate=20, seconds=50, seed=1)

    assert moments == sorted(moments) == random_moments(rate=20, seconds=50, seed=1)
    assert len(moments) == pytest.approx(1000, rel=0.05)


def small_part(outcomes: Outcomes, absent: Mapping[str, str]) -> Part:
    plan = next(plan for plan in QUICK if plan.store is Store.SQLITE).of(["ade", "huey", "litequeue", "dbos"])
    present = [name for name in plan.contestants if name not in absent]
    return Part(plan, outcomes, {name: {"version": "1.0"} for name in present}, absent)


def test_the_page_shows_figures_gaps_and_failures(tmp_path: Path) -> None:
    broken = Outcome(round=0, step="drain", contestant="ade", before=STEADY, after=STEADY, failure="exit code 1: boom")
    lacking = Outcome(
        round=0,
        step="drain_priorities",
        contestant="litequeue",
        before=STEADY,
        after=STEADY,
        not_offered="no priorities",
    )
    outcomes = Outcomes([broken, lacking, *rates("huey", 1234), *rates("ade", 20_000, step="drain_priorities")])
    part = small_part(outcomes, {"dbos": "not installed: no such version"})

    page = write(Run([part], machine={"cores": "2"}, date="2026-11-15", seconds=60), tmp_path).read_text()

    assert "n/a: no priorities" in page
    assert "failed: exit code 1: boom" in page
    assert "not installed: no such version" in page
    assert "1,234 to 1,234" in page
    assert "16.21x" in page  # ADE with mixed priorities against Huey with one
    for link in ("sqlite-drain-per_second.svg", "sqlite-drain_priorities-per_second.svg"):
        assert f"charts/{link}" in page
        ElementTree.parse(tmp_path / "charts" / link)


def test_starts_are_seen_by_another_process_as_soon_as_they_are_noted(tmp_path: Path) -> None:
    seen = Starts.create(tmp_path, tasks=3, processes=2)
    first, second = Starts(tmp_path, processes=2, process=0), Starts(tmp_path, processes=2, process=1)

    assert not seen.any_task()
    first.note(payload(0, 200))
    first.note(payload(2, 200))
    assert (seen.any_task(), seen.all_began(), seen.every_task()) == (True, False, False)
    second.note(payload(1, 200))

    assert (seen.all_began(), seen.every_task()) == (True, True)
    assert seen.count_since(seen.when_all_began()) == 1


def test_a_server_of_its_own_answers_until_the_block_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as url, Wire(url) as wire:
        assert wire.call("SET", "greeting", "héllo") == "OK"
        assert wire.call("GET", "greeting") == "héllo"
        assert wire.call("LRANGE", "nothing", "0", "-1") == []
        assert wire.number("STRLEN", "greeting") == 6
        assert wire.cpu_seconds() > 0
        assert wire.call("CONFIG", "GET", "appendfsync") == ["appendfsync", "everysec"]
        with pytest.raises(RuntimeError, match="unknown command"):
            wire.call("NONSENSE")
    with pytest.raises(ConnectionError):
        Wire(url)


@pytest.mark.parametrize("name", ["ade", "floor", "ade_redis", "ade_redis_blocking", "floor_redis"])
def test_what_needs_no_package_of_others_takes_tasks_and_counts_them_as_unfinished(name: str, tmp_path: Path) -> None:
    contestant = load(name)
    texts = [payload(number, 200) for number in range(3)]
    with serving(tmp_path) as url:
        place = Place(tmp_path, url)
        assert contestant.describe(place)["version"]
        assert producer_of(contestant.connect(place)).one_by_one(texts) > 0
        with contestant.watch(place) as unfinished:
            assert unfinished(3) == 3


LOCKS = sorted({entry.requirements for entry in ENTRIES.values() if entry.requirements})


@pytest.mark.parametrize("lock", LOCKS)
def test_the_peers_are_pinned_by_hash_and_their_lock_names_no_registry(lock: str) -> None:
    text = (PEERS / lock).read_text()
    pins = [line for line in text.splitlines() if "==" in line]

    assert len(pins) >= 2
    assert all(pin.endswith("\\") for pin in pins)  # a hash follows each of them
    assert "--hash=sha256:" in text
    assert "://" not in text


def test_every_lock_belongs_to_a_contestant_and_has_its_source() -> None:
    assert sorted(path.name for path in PEERS.glob("*.txt")) == LOCKS
    assert sorted(path.stem for path in PEERS.glob("*.in")) == [lock.removesuffix(".txt") for lock in LOCKS]


def test_every_contestant_has_its_module() -> None:
    for entry in ENTRIES.values():
        module, _, variable = entry.module.partition(":")
        assert f"\n{variable}: {KINDS[entry.subject]} = " in (HERE / "contestants" / f"{module}.py").read_text()
