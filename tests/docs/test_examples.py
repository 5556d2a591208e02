"""Every example of the README, the tutorial and the how-to pages runs as it is printed."""

import ast
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, shown
from tests.docs.examples import PAGES, REFERENCE, examples_of, failures_of, missing_for

CODE = ("python", "sh")
WITH_EXAMPLES = [page for page in [*PAGES, *REFERENCE] if any(example.is_run for example in examples_of(page))]
MOST_LINES_IN_README = 15


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=shown)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    if missing := missing_for(page):
        pytest.skip(f"the examples of {shown(page)} call {', '.join(missing)}, which this machine has not")

    failures = failures_of(page, tmp_path)

    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_block_of_code_is_run_or_says_why_not(page: Path) -> None:
    unmarked = [example.place for example in examples_of(page) if example.language in CODE and not example.what]

    assert unmarked == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_all_python_in_a_page_is_python(page: Path) -> None:
    programs = [example for example in examples_of(page) if example.language == "python"]

    assert all(ast.parse(example.body, example.place).body for example in programs)


def test_the_readme_has_one_short_example() -> None:
    [example] = [example for example in examples_of(ROOT / "README.md") if example.language == "python"]

    assert len([line for line in example.body.splitlines() if line.strip()]) <= MOST_LINES_IN_README


def test_an_example_that_fails_is_found_with_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- example: run -->\n```sh\necho told; false\n```\n")
    folder = tmp_path / "folder"
    folder.mkdir()

    [failure] = failures_of(page, folder)

    assert "page.md:4 ended with 1\ntold" in failure


def test_an_output_that_differs_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    lines = ("<!-- example: run -->", "```sh", "echo one", "echo two", "```", "<!-- example: output -->")
    page.write_text("\n".join([*lines, "```text", "one", "three", "```", ""]))
    folder = tmp_path / "folder"
    folder.mkdir()

    [failure] = failures_of(page, folder)

    assert "page.md:7 shows another output" in failure


def test_a_page_tells_which_programs_it_needs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- needs: sh no-such-program -->\n")

    assert missing_for(page) == ["no-such-program"]
