"""The dashboard and the reference name the metrics that there are, all of them and no others."""

import json
import re
from collections.abc import Iterator
from typing import Any

from ade.events.prometheus import FAMILIES, MetricKind
from docs.generate import DOCS

BOARD = json.loads((DOCS / "grafana" / "ade.json").read_text())
_METRIC = re.compile(r"\bade_\w+")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def queries(part: Any) -> Iterator[str]:
    """Every query of the dashboard, wherever it stands."""
    if isinstance(part, dict):
        yield from (part[key] for key in ("expr", "query") if isinstance(part.get(key), str))
        for each in part.values():
            yield from queries(each)
    elif isinstance(part, list):
        for each in part:
            yield from queries(each)


def named(text: str) -> set[str]:
    found = set(_METRIC.findall(text))
    plain = {_SUFFIX.sub("", name) for name in found}
    return {name if name in FAMILIES else _SUFFIX.sub("", name) for name in found | plain}


def test_the_dashboard_asks_only_for_metrics_that_there_are_and_for_all_of_them() -> None:
    asked = {name for query in queries(BOARD) for name in named(query)}
    assert asked == FAMILIES.keys()


def test_counters_are_asked_for_as_rates_and_histograms_as_quantiles() -> None:
    for query in queries(BOARD):
        for name in named(query) if not query.startswith("label_values") else ():
            kind = FAMILIES[name].kind
            assert (kind is MetricKind.COUNTER) == bool(re.search(rf"(rate|increase)\({name}\b", query)), query
            assert (kind is MetricKind.HISTOGRAM) == (f"{name}_bucket" in query and "histogram_quantile" in query), (
                query
            )


def test_labels_are_those_of_the_metric() -> None:
    for query in queries(BOARD):
        for name, inside in re.findall(r"\b(ade_\w+)\{([^}]*)\}", query):
            family = FAMILIES.get(name) or FAMILIES[_SUFFIX.sub("", name)]
            assert set(re.findall(r"(\w+)=~", inside)) <= {*family.labels, "le"}, query


def test_panels_have_their_own_ids_and_do_not_lie_on_each_other() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (column, line)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(column for column, _ in places) < 24


def test_every_metric_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "metrics.md").read_text()
    assert [name for name in FAMILIES if f"| `{name}` |" not in page] == []
