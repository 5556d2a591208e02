"""The targets of the fuzzer, tried with inputs that are the same in every run; `make fuzz` looks for others."""

import re
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture.repository import SOURCE
from tests.fuzz.everything import TARGETS
from tests.fuzz.mutating import inputs, stretched
from tests.fuzz.table import Target, tried

INPUTS = 250  # for each target, beside its seeds
LONG = 4_000  # bytes, and four times as many
NOTICED_S, MOST_GROWTH = 0.02, 11  # in proportion it would be 4, and 16 if every part is held against every other

READS = re.compile(r"^\s*def (?:read_|parse_|feed\()", re.MULTILINE)  # what is async asks a store
# Readers of what nobody else has written: a store's own bytes, pipes between its own processes, objects of Python.
NOT_TRIED = {
    "stores.sql_files": "SQL files of ADE itself",
    "composition.stores": "opens a store for reading",
    "agents.processes.output": "passes bytes on to readers that are tried",
    "cli.interaction": "takes any text",
    "tasks.arguments": "reads functions",
    "stores.redis.codec": "records that scripts of ADE have written",
    "stores.sqlite.codec": "rows that ADE has written",
    "worker.shared_memory": "memory that its own processes share",
}


@pytest.mark.parametrize("one", TARGETS.values(), ids=lambda one: one.name)
def test_no_input_brings_more_than_the_declared_errors(one: Target) -> None:
    everything = list(inputs(one, INPUTS))
    for data in everything:
        tried(one, data)

    assert len(everything) > INPUTS


@pytest.mark.slow
@pytest.mark.parametrize("one", TARGETS.values(), ids=lambda one: one.name)
def test_what_is_four_times_as_long_takes_about_four_times_as_long(one: Target) -> None:
    pairs = zip(stretched(one, LONG), stretched(one, 4 * LONG), strict=True)

    assert [data[:60] for data, longer in pairs if _is_trap(one, data, longer)] == []


def _is_trap(one: Target, data: bytes, longer: bytes) -> bool:
    """Once more before it is believed: the machine may have been busy."""
    if _taken_s(one, longer) < NOTICED_S:
        return False
    return all(_taken_s(one, longer) > MOST_GROWTH * _taken_s(one, data) for _ in range(3))


def _taken_s(one: Target, data: bytes) -> float:
    begun = time.process_time()
    one.run(data)
    return time.process_time() - begun


def test_every_parser_has_a_target() -> None:
    found, named = parsers(), {module for one in TARGETS.values() for module in one.modules}

    assert found - named - NOT_TRIED.keys() == set()
    assert NOT_TRIED.keys() - found == set()
    assert [module for module in named if find_spec(f"ade.{module}") is None] == []


def parsers() -> set[str]:
    """The modules with a function that reads something, by its name, or with something that is fed with bytes."""
    return {_name(path) for path in SOURCE.rglob("*.py") if READS.search(path.read_text())}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
