"""Metrics as text: the format of Prometheus (0.0.4), or OpenMetrics (1.0.0) for who asks for it."""

from collections.abc import Iterable, Iterator, Mapping

from ade.core.figures.families import FAMILIES, Family, Kind
from ade.core.figures.histograms import Histogram

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPEN_TYPE, _PLAIN_TYPES = "application/openmetrics-text", ("text/plain", "text/*", "*/*")
_TOTAL = "_total"

Labels = tuple[str, ...]  # values, in the order of the family's labels
Samples = Mapping[Labels, float | Histogram]


def chosen(accept: str) -> str:
    """Which of the two types to answer in, by the header `Accept`."""
    weights = dict(_weights(accept))
    wanted = weights.get(_OPEN_TYPE, 0.0)
    plain = max((weights.get(kind, 0.0) for kind in _PLAIN_TYPES), default=0.0)
    return OPEN if wanted > 0 and wanted >= plain else PLAIN


def _weights(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            yield kind, float(weight)
        except ValueError:
            yield kind, 0.0


def written(measured: Mapping[str, Samples], content_type: str) -> str:
    """All families in the order of their table, also those of which there is nothing to tell."""
    is_open = content_type == OPEN
    lines: list[str] = []
    for name, family in FAMILIES.items():
        shown = name.removesuffix(_TOTAL) if is_open and family.kind is Kind.COUNTER else name
        lines += (f"# HELP {shown} {family.help}", f"# TYPE {shown} {family.kind}")
        lines += _samples(family, measured.get(name, {}))
    if is_open:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _samples(family: Family, samples: Samples) -> Iterator[str]:
    for values, sample in samples.items():
        pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(family.labels, values, strict=True)]
        if isinstance(sample, Histogram):
            yield from _buckets(family, pairs, sample)
        else:
            yield f"{family.name}{_braced(pairs)} {_number(sample)}"


def _buckets(family: Family, pairs: list[str], histogram: Histogram) -> Iterator[str]:
    count = 0
    for bound, inside in zip((*family.bounds, None), histogram.counts, strict=True):
        count += inside
        end = 'le="+Inf"' if bound is None else f'le="{bound}.0"'
        yield f"{family.name}_bucket{_braced([*pairs, end])} {count}"
    yield f"{family.name}_sum{_braced(pairs)} {histogram.total}"
    yield f"{family.name}_count{_braced(pairs)} {count}"


def _braced(pairs: Iterable[str]) -> str:
    inside = ",".join(pairs)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
