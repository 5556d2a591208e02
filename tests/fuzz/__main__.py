"""Try every target with a fuzzer that follows which lines an input reaches: `make fuzz`.

What it has learnt stays in `.fuzz/<target>`, and the next search begins there. With `--runs` it begins anew, and tries
so many inputs whatever the machine. An input that breaks something is kept; `--input FILE TARGET` tries it once more.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from hashlib import sha256
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tests.fuzz.table import TARGETS, Target, tried

FOLDER = Path(".fuzz")
OPTIONS = ("-max_len=4096", "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1")
# Where parsers are. The rest of ADE would take long to be prepared, and its lines tell nothing about them.
INSTRUMENTED = [
    *(
        "ade.accounts",
        "ade.agents",
        "ade.approvals",
        "ade.common",
        "ade.events",
        "ade.locks",
        "ade.server",
        "ade.settings",
    ),
    *("ade.tasks", "ade.webhooks", "ade.client.responses", "ade.cli.parameters", "ade.stores.redis.client.options"),
    *("ade.worker.sweep", "h11", "cronsim"),
]


class Search(NamedTuple):
    """One target being searched, in a process of its own."""

    one: Target
    folder: Path
    begun: float

    def run(self, data: bytes) -> None:
        """Try an input, and keep it if it breaks something."""
        try:
            tried(self.one, data)
        except BaseException:
            (self.folder / f"found-{sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    @property
    def report(self) -> Path:
        return self.folder / "report.txt"


def main() -> int:
    given = _arguments()
    try:
        atheris: Any = import_module("atheris")
    except ImportError as error:
        print(f"fuzz: left out, atheris is not here for Python {platform.python_version()} on {sys.platform} ({error})")
        return 0
    with redirect_stderr(StringIO()), atheris.instrument_imports(INSTRUMENTED, enable_loader_override=False):
        import_module("tests.fuzz.everything")
        for one in TARGETS.values():
            [*one.seeds()]  # they load what is loaded when it is first needed
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        sys.exit(f"fuzz: there is no target {unknown[0]}; known are {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in given.targets or TARGETS]
    if given.input is not None:
        for one in chosen:
            tried(one, given.input.read_bytes())
        return 0
    with _folder(is_kept=given.runs is None) as folder:
        return _search_all(atheris, chosen, folder, given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=...", description=__doc__)
    parser.add_argument("targets", nargs="*", help="all of them unless some are named")
    parser.add_argument("--seconds", type=int, default=30, help="for each target (default: 30)")
    parser.add_argument("--runs", type=int, help="inputs for each target, in place of a time")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="targets at a time")
    parser.add_argument("--input", type=Path, help="try this one input")
    return parser.parse_args()


@contextmanager
def _folder(*, is_kept: bool) -> Iterator[Path]:
    if is_kept:
        yield FOLDER
    else:
        with tempfile.TemporaryDirectory(prefix="ade-fuzz-") as name:
            yield Path(name)


def _search_all(atheris: Any, chosen: list[Target], folder: Path, given: argparse.Namespace) -> int:
    """Several at a time; each is told of when it has ended. 1 if something was found."""
    waiting, running, found = chosen[::-1], dict[int, Search](), 0
    while waiting or running:
        while waiting and len(running) < given.jobs:
            one = waiting.pop()
            search = Search(one, _filled(folder / one.name, one), time.monotonic())
            process = os.fork()
            if process == 0:
                _become(atheris, search, given)
            running[process] = search
        process, status = os.wait()
        found += _told(running.pop(process), is_fine=status == 0, left=len(waiting) + len(running))
    print(f"fuzz: {len(chosen)} targets, {found} with findings")
    return 1 if found else 0


def _filled(folder: Path, one: Target) -> Path:
    """The folder of a target, with its seeds and its words."""
    inputs = folder / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(one.seeds()):
        (inputs / f"seed-{number}").write_bytes(seed)
    lines = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in one.words if word)
    (folder / "words").write_text("".join(lines))
    return folder


def _become(atheris: Any, search: Search, given: argparse.Namespace) -> NoReturn:
    """The fuzzer. Nothing that its parent wants to do at the end is done here."""
    status = 1
    try:
        with search.report.open("wb") as report:
            os.dup2(report.fileno(), 1)
            os.dup2(report.fileno(), 2)
        until = f"-max_total_time={given.seconds}" if given.runs is None else f"-runs={given.runs}"
        places = (f"-dict={search.folder}/words", f"-artifact_prefix={search.folder}/found-", f"{search.folder}/inputs")
        atheris.Setup(["fuzz", until, "-seed=1", *OPTIONS, *places], search.run)
        atheris.Fuzz()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(status)


def _told(search: Search, *, is_fine: bool, left: int) -> int:
    """One line for a target without findings; all that is known of one with some."""
    text = search.report.read_text("utf-8", "replace")
    runs = next((line.split()[-1] for line in text.splitlines() if "number_of_executed_units" in line), "?")
    taken = time.monotonic() - search.begun
    print(f"{search.one.name:24} {runs:>9} inputs {taken:6.1f} s  {'ok' if is_fine else 'FOUND'}   ({left} to go)")
    if is_fine:
        return 0
    print("\n".join(text.splitlines()[-60:]))
    for path in sorted(search.folder.glob("found-*")):
        print(f"fuzz: {path}: {path.read_bytes()[:1_000]!r}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
