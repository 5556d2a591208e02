"""What every test shares: the event loop it runs on and how hard hypothesis tries."""

import os
import re
from collections import Counter

import pytest
from hypothesis import settings

from tests.conformance.backends import BACKENDS

# A busy machine is no reason for a property to fail, so examples have no deadline.
settings.register_profile("ade", deadline=None, print_blob=True, derandomize=False)
# The same examples in every run: a red build is about the change, not about luck. Runs at a desk try more, and others.
settings.register_profile("ade-ci", settings.get_profile("ade"), derandomize=True, database=None, max_examples=50)
settings.load_profile("ade-ci" if os.environ.get("CI") == "true" else "ade")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio alone; ADE supports no other loop."""
    return "asyncio"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many stories each store has passed, and why tests were skipped, also without `-rs`."""
    passed = Counter(
        part
        for report in terminalreporter.stats.get("passed", [])
        if "conformance" in report.nodeid
        for part in re.split(r"[\[\]-]", report.nodeid)
        if part in BACKENDS
    )
    if passed:
        told = ", ".join(f"{name} {passed[name]}" for name in BACKENDS)
        terminalreporter.write_line(f"conformance tests passed by store: {told}")
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"SKIPPED {count}: {reason}")


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else report.longreprtext
