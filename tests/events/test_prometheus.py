"""The text that Prometheus reads, judged by its own parser."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from prometheus_client.openmetrics import parser as open_parser

from ade.events.prometheus import FAMILIES, OPEN, PLAIN, MetricFamily, MetricKind, Samples, chosen, written
from ade.events.rollups import Histogram

LABEL = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNT = st.integers(0, 10**12)


@st.composite
def measured(draw: st.DrawFn) -> dict[str, Samples]:
    return {name: draw(_samples(family)) for name, family in FAMILIES.items()}


def _samples(family: MetricFamily) -> st.SearchStrategy[Samples]:
    labels = st.tuples(*(LABEL for _ in family.labels))
    value: st.SearchStrategy[float | Histogram] = COUNT
    if family.kind is MetricKind.HISTOGRAM:
        counts = st.lists(COUNT, min_size=len(family.bounds) + 1, max_size=len(family.bounds) + 1)
        value = st.builds(Histogram, counts, COUNT)
    elif family.kind is MetricKind.GAUGE:
        value = COUNT | st.floats(0, 1e12)
    return st.dictionaries(labels, value, max_size=2)


def judge(found: Sequence[Any], given: dict[str, Samples], name: str) -> None:
    family = FAMILIES[name]
    by_name: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for sample in found:
        by_name.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    for values, value in given[name].items():
        key = tuple(sorted(zip(family.labels, values, strict=True)))
        if isinstance(value, Histogram):
            assert by_name[f"{name}_count"][key] == value.count
            assert by_name[f"{name}_sum"][key] == value.total
            whole = tuple(sorted((*key, ("le", "+Inf"))))
            assert by_name[f"{name}_bucket"][whole] == value.count
        else:
            assert math.isclose(by_name[name][key], value)


@given(measured())
def test_what_was_measured_is_what_prometheus_reads(given: dict[str, Samples]) -> None:
    families = list(parser.text_string_to_metric_families(written(given, PLAIN)))
    assert len(families) == len(FAMILIES)
    samples = [sample for family in families for sample in family.samples]
    for name in FAMILIES:
        judge(samples, given, name)


@given(measured())
def test_and_what_is_read_as_openmetrics(given: dict[str, Samples]) -> None:
    families = list(open_parser.text_string_to_metric_families(written(given, OPEN)))  # type: ignore[no-untyped-call]
    assert {family.name for family in families} == {
        name.removesuffix("_total") if family.kind is MetricKind.COUNTER else name for name, family in FAMILIES.items()
    }
    samples = [sample for family in families for sample in family.samples]
    for name in FAMILIES:
        judge(samples, given, name)


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/html,application/xhtml+xml,*/*;q=0.8", PLAIN),
        ("application/openmetrics-text", OPEN),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", OPEN),
        ("application/openmetrics-text;q=0.2,text/plain", PLAIN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text;q=lots", PLAIN),
    ],
)
def test_who_asks_for_openmetrics_gets_it(accept: str, answer: str) -> None:
    assert chosen(accept) == answer


def test_names_are_those_that_were_promised() -> None:
    promised = """ade_queue_pending_total ade_queue_delayed_total ade_queue_stream_length ade_tasks_enqueued_total
        ade_tasks_completed_total ade_tasks_failed_total ade_workers_active_total ade_workers_dead_total
        ade_task_duration_ms ade_task_wait_ms ade_task_attempts"""
    assert set(promised.split()) <= FAMILIES.keys()
    assert all(family.name.endswith("_total") for family in FAMILIES.values() if family.kind is MetricKind.COUNTER)
