"""What a run says at its end: the slowest tests, which tests were skipped and why, and what each store has passed."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pytest

SLOWEST = 10
_MOST_NAMES = 12  # of one reason and file; beyond that they are counted


def slowest(reports: Iterable[pytest.TestReport], count: int = SLOWEST) -> list[tuple[float, str]]:
    """Seconds and test, the longest first; what setting up and tearing down took belongs to the test."""
    taken: dict[str, float] = defaultdict(float)
    for report in reports:
        taken[report.nodeid] += report.duration
    return sorted(((seconds, test) for test, seconds in taken.items()), reverse=True)[:count]


def skips(reports: Iterable[pytest.TestReport]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """The tests that were skipped, by reason and file."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        file, _, test = report.nodeid.partition("::")
        found[_reason(report)][file].append(test)
    return found


def conformance(reports: Iterable[pytest.TestReport], backends: Iterable[str]) -> Counter[str]:
    """How many tests of the conformance suite each store has passed."""
    known = frozenset(backends)
    parts = (re.split(r"[\[\]-]", report.nodeid) for report in reports if "conformance" in report.nodeid)
    return Counter(part for words in parts for part in words if part in known)


def lines(stats: Mapping[str, Sequence[object]], backends: Sequence[str]) -> list[str]:
    """The summary, of what pytest has counted over all worker processes."""
    reports = {kind: [each for each in some if isinstance(each, pytest.TestReport)] for kind, some in stats.items()}
    told = []
    if passed := conformance(reports.get("passed", ()), backends):
        told.append(
            "conformance tests passed by store: "
            + ", ".join(f"{name} {passed[name]}" for name in backends if passed[name])
        )
    longest = slowest(report for some in reports.values() for report in some)
    if len(longest) == SLOWEST:
        told += [f"the {SLOWEST} slowest tests:", *(f"  {seconds:7.2f} s  {test}" for seconds, test in longest)]
    for reason, files in sorted(skips(reports.get("skipped", ())).items()):
        told.append(f"SKIPPED {sum(map(len, files.values()))}: {reason}")
        told += [f"  {file}: {_named(tests)}" for file, tests in sorted(files.items())]
    return told


def _named(tests: Sequence[str]) -> str:
    return ", ".join(tests) if len(tests) <= _MOST_NAMES else f"{len(tests)} tests"


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else report.longreprtext
