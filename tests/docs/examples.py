"""Examples in the pages: found by the comment above them, and run page by page as one story.

<!-- example: tasks.py -->              the block is written to this file
<!-- example: run -->                   the block is run: Python as a program, sh by bash, in one shell for the page
<!-- example: output -->                what the block before has printed; `...` stands for anything
<!-- example: shown, and why -->        the block is only shown

<!-- needs: curl jq -->                 programs that the examples of this page call, beside those of ADE
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path
from typing import NamedTuple

from tests.architecture.repository import ROOT, shown

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "how-to").glob("*.md"))
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))  # code that is shown there is mostly generated

_FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- example: (?P<what>[^>]+?) -->\n\Z")
_NEEDS = re.compile(r"^<!-- needs: (?P<programs>[^>]+?) -->$", re.MULTILINE)
_SEPARATOR = "\x1e"
_LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[\w+ *\] .*\n", re.MULTILINE)  # a worker's own words
_PATIENCE_S = 120


class Example(NamedTuple):
    """A fenced block of a page. `what` is empty when nothing is said about it."""

    page: Path
    line: int
    language: str
    body: str
    what: str

    @property
    def place(self) -> str:
        page = shown(self.page) if self.page.is_relative_to(ROOT) else self.page.name
        return f"{page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.what == "run"


def examples_of(page: Path) -> list[Example]:
    text = page.read_text("utf-8")
    return [
        Example(page, text[: fence.start()].count("\n") + 1, fence["language"], fence["body"], _said_above(text, fence))
        for fence in _FENCE.finditer(text)
    ]


def missing_for(page: Path) -> list[str]:
    """Programs that a page needs and this machine has not."""
    needs = [name for found in _NEEDS.finditer(page.read_text("utf-8")) for name in found["programs"].split()]
    return [name for name in needs if shutil.which(name) is None]


def _said_above(text: str, fence: re.Match[str]) -> str:
    mark = _MARK.search(text[: fence.start()])
    return mark["what"] if mark else ""


def failures_of(page: Path, folder: Path) -> list[str]:
    """Run the examples of a page in an empty folder; what is wrong with them, in sentences."""
    examples = examples_of(page)
    story = "\n".join(_steps(examples, folder))
    outputs, code, complaints = _run(story, folder)
    if code != 0:
        reached = [example for example in examples if example.is_run][len(outputs) - 1]
        return [f"{reached.place} ended with {code}\n{outputs[-1]}\n{complaints}"]
    return list(_differences(examples, outputs))


def _steps(examples: Sequence[Example], folder: Path) -> Iterator[str]:
    """One script for the page; a separator in the output marks where each run begins."""
    (folder / "home").mkdir()
    yield "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"
    for number, example in enumerate(examples):
        kept = folder / "home" / f"example_{number}"
        if example.what == "run" and example.language == "sh":
            yield f"printf '{_SEPARATOR}'\n{example.body}"
        elif example.what == "run":
            kept.with_suffix(".py").write_text(example.body)
            yield f"printf '{_SEPARATOR}'\nPYTHONPATH=. python home/{kept.name}.py"
        elif _is_file(example.what):
            kept.write_text(example.body)
            yield f"cp home/{kept.name} {example.what}"


def _is_file(what: str) -> bool:
    return re.fullmatch(r"[\w.-]+\.\w+", what) is not None


def _run(story: str, folder: Path) -> tuple[list[str], int, str]:
    """What each step printed, the exit code, and what was said on stderr."""
    out, err = folder / "home" / "stdout", folder / "home" / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        shell = subprocess.Popen(
            ["bash", "-c", story],
            cwd=folder,
            env=_environment(folder / "home"),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            code = shell.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            code = shell.wait()
    parts = out.read_text("utf-8").split(_SEPARATOR)[1:]
    return parts, code, err.read_text("utf-8")[-4000:]


def _environment(home: Path) -> dict[str, str]:
    """Of the tester's own settings nothing reaches the examples."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONWARNINGS": "error"}


def _differences(examples: Sequence[Example], outputs: Sequence[str]) -> Iterator[str]:
    remaining = iter(outputs)
    last = ""
    for example in examples:
        if example.is_run:
            last = _LOG_LINE.sub("", next(remaining))
        elif example.what == "output" and not OutputChecker().check_output(example.body, last, ELLIPSIS):
            yield f"{example.place} shows another output than what came:\n{last}"
