"""Every metric, as the code tells it."""

from ade.events.prometheus import FAMILIES, MetricFamily
from docs.generators.tables import listed, table


def metrics() -> str:
    return table(["metric", "kind", "labels", "meaning"], (_row(family) for family in FAMILIES.values()))


def metric_buckets() -> str:
    with_bounds = [family for family in FAMILIES.values() if family.bounds]
    rows = ([f"`{family.name}`", ", ".join(str(bound) for bound in family.bounds)] for family in with_bounds)
    return table(["histogram", "upper ends of its buckets"], rows)


def _row(family: MetricFamily) -> list[str]:
    return [f"`{family.name}`", str(family.kind), listed(family.labels), family.help]
