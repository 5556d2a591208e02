"""The parts of the benchmark that only compute: what they say must be right before any figure can be."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.bars import LimitBar, RatioBar, judge
from benchmarks.charts import Bar, bar_chart, shown
from benchmarks.contestants import ENTRIES
from benchmarks.contract import Options, payloads
from benchmarks.environments import HERE
from benchmarks.figures import deviation, percentile, summarise
from benchmarks.machine import Speed
from benchmarks.measures import MEASURES
from benchmarks.outcomes import Outcome, Outcomes
from benchmarks.pacing import random_moments
from benchmarks.plan import FULL, QUICK, Step, interleaved
from benchmarks.report import Run, write
from benchmarks.tables import markdown_table

STEADY = Speed(cpu_ms=20.0, sync_ms=0.2)
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
            Bar("ADE", summarise([100.0, 200.0, 400.0]), own=True),
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


def test_a_ratio_compares_within_each_round_with_the_best_rival_there() -> None:
    rivals = [("drain", "huey"), ("drain", "litequeue")]
    bar = RatioBar("Drain", "drain", rivals, "the best peer", 6, moonshot=12)
    # Round two is slow for everybody: the ratio does not suffer.
    peers = [*rates("huey", 100, 50, 80), *rates("litequeue", 90, 20, 100)]

    verdict = judge(bar, Outcomes([*rates("ade", 700, 350, 900), *peers]))

    assert verdict.measured == "7.00x (7.00 to 9.00)"
    assert (verdict.met, verdict.moonshot) == ("met", "≥ 12x: not met")


def test_a_ratio_skips_rounds_without_a_rival_and_says_when_there_is_none() -> None:
    bar = RatioBar("Drain", "drain", [("drain", "huey")], "Huey", 6)

    assert judge(bar, Outcomes([*rates("ade", 500, 900), *rates("huey", 100)])).met == "not met"
    assert judge(bar, Outcomes(rates("ade", 500))).met == "not measured"


def test_a_limit_is_met_by_its_median() -> None:
    bar = LimitBar("Pick-up", "pickup", "p50_ms", "ms", 3, moonshot=1.5)
    found = [outcome("ade", {"p50_ms": p50}, step="pickup") for p50 in (1.0, 2.0, 9.0)]

    verdict = judge(bar, Outcomes(found))

    assert (verdict.measured, verdict.met) == ("2.00 ms (1.00 to 9.00)", "met")
    assert verdict.moonshot == "≤ 1.5 ms: not met"


def test_a_measurement_on_a_machine_that_slowed_down_is_flagged() -> None:
    calm = [outcome("ade", {}) for _ in range(3)]
    slow_loop = outcome("huey", {}, after=Speed(cpu_ms=26.0, sync_ms=0.2))
    slow_disk = outcome("huey", {}, after=Speed(cpu_ms=20.0, sync_ms=0.1))

    assert Outcomes([*calm, slow_loop, slow_disk]).disturbed() == [slow_loop, slow_disk]


def test_every_contestant_gets_its_turn_in_every_round_and_is_first_in_some() -> None:
    contestants = ["ade", "huey", "litequeue"]
    jobs = list(interleaved(FULL, contestants))

    assert len(jobs) == FULL.rounds * len(FULL.steps) * len(contestants)
    firsts = [job.contestant for job in jobs[:: len(contestants)]]
    assert set(firsts) == set(contestants)


@pytest.mark.parametrize("step", [*FULL.steps, *QUICK.steps], ids=lambda step: step.name)
def test_a_step_names_a_measure_and_its_options_survive_the_way_to_the_process(step: Step) -> None:
    assert step.measure in MEASURES
    options = step.options("ade", "/somewhere")
    assert Options.from_json(options.to_json()) == options


def test_payloads_have_the_size_asked_for_and_tell_their_number() -> None:
    texts = payloads(Options(place="", tasks=12, payload_bytes=200))

    assert {len(text) for text in texts} == {200}
    assert [int(text[:8]) for text in texts] == list(range(12))


def test_moments_come_at_the_rate_asked_for_and_are_repeatable() -> None:
    moments = random_moments(rate=20, seconds=50, seed=1)

    assert moments == sorted(moments) == random_moments(rate=20, seconds=50, seed=1)
    assert len(moments) == pytest.approx(1000, rel=0.05)


def test_the_page_shows_figures_gaps_and_failures(tmp_path: Path) -> None:
    contestants = ["ade", "huey", "litequeue"]
    broken = Outcome(round=0, step="drain", contestant="ade", before=STEADY, after=STEADY, failure="exit code 1: boom")
    lacking = Outcome(
        round=0,
        step="drain_priorities",
        contestant="litequeue",
        before=STEADY,
        after=STEADY,
        not_offered="no priorities",
    )
    run = Run(
        plan=QUICK,
        contestants=contestants,
        outcomes=Outcomes([broken, lacking, *rates("huey", 1234), *rates("ade", 20_000, step="drain_priorities")]),
        configurations={name: {"version": "1.0"} for name in contestants},
        machine={"cores": "2"},
        date="2026-11-15",
        seconds=60,
    )

    page = write(run, tmp_path).read_text()

    assert "n/a: no priorities" in page
    assert "exit code 1: boom" in page
    assert "1,234 to 1,234" in page
    assert "16.21x" in page  # ADE with mixed priorities against Huey with one
    for link in ("drain-per_second.svg", "drain_priorities-per_second.svg"):
        assert f"charts/{link}" in page
        ElementTree.parse(tmp_path / "charts" / link)


def test_the_peers_are_pinned_by_hash_and_their_lock_names_no_registry() -> None:
    for lock in {entry.requirements for entry in ENTRIES.values() if entry.requirements}:
        text = (HERE / lock).read_text()
        pins = [line for line in text.splitlines() if "==" in line]
        assert len(pins) >= 3
        assert all(pin.endswith("\\") for pin in pins)  # a hash follows each of them
        assert "--hash=sha256:" in text
        assert "://" not in text
