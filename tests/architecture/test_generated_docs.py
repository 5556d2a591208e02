"""The tables and the diagram of the documentation are those of the code."""

import subprocess
import sys
from pathlib import Path

import pytest

from ade.failures import FAILURES
from ade.tasks.lifecycle import RULES, Status
from docs.generate import BLOCKS, DOCS, main
from tests.architecture.repository import ROOT

LIFECYCLE = DOCS / "explanation" / "lifecycle.md"
STALE = "# Page\n\n<!-- generated:backoff -->\nold numbers\n<!-- /generated -->\n\nThe end.\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "how-to" / "page.md"
    path.parent.mkdir()
    path.write_text(STALE)
    return path


def test_every_generated_block_is_up_to_date() -> None:
    """In a process of its own: `typing` takes 1 and 1.0 for one bound, so what was loaded before shows in schemas."""
    done = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_lifecycle_page_draws_every_arrow_of_the_state_table() -> None:
    diagram = LIFECYCLE.read_text().partition("stateDiagram-v2")[2].partition("```")[0]
    drawn = {
        (*arrow.strip().split(" --> "), verb)
        for arrow, _, ways in (line.partition(": ") for line in diagram.splitlines() if ": " in line)
        for verb in ways.split(", ")
    }

    assert drawn == {
        (source, target, verb)
        for verb, rule in RULES.items()
        for source in rule.sources or {"[*]"}
        for target in rule.targets
    }


def test_the_lifecycle_page_names_every_status_and_every_kind_of_failure() -> None:
    text = LIFECYCLE.read_text()

    assert [word for word in (*Status, *FAILURES) if f"\n| `{word}` |" not in text] == []


def test_no_block_is_generated_for_nobody() -> None:
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))

    assert [name for name in BLOCKS if f"<!-- generated:{name} -->" not in pages] == []


def test_the_check_finds_a_stale_page_and_leaves_it_alone(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], folder=page.parents[1]) == 1

    assert page.read_text() == STALE
    assert "how-to/page.md: out of date" in capsys.readouterr().out


def test_a_stale_page_is_rewritten_between_its_marks_only(page: Path) -> None:
    assert main([], folder=page.parents[1]) == 0

    before, _, rest = page.read_text().partition("<!-- generated:backoff -->\n")
    block, _, after = rest.partition("\n<!-- /generated -->")
    assert (before, block, after) == ("# Page\n\n", BLOCKS["backoff"](), "\n\nThe end.\n")
    assert main(["--check"], folder=page.parents[1]) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<!-- generated:nonsense -->\n<!-- /generated -->\n", "nothing generates nonsense; known are statuses"),
        ("<!-- generated:backoff -->\n", "does not end"),
        ("<!-- generated:backoff -->\n<!-- generated:verbs -->\n<!-- /generated -->\n", "does not end"),
    ],
)
def test_a_broken_block_is_reported_and_nothing_written(
    page: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_text(text)

    assert main([], folder=page.parents[1]) == 2

    assert page.read_text() == text
    assert f"how-to/page.md: {says}" in capsys.readouterr().err.replace("a generated block ", "")
