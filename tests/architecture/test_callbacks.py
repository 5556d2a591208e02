"""Collaborators are passed to constructors: no callback is put into an object from outside."""

import pytest

from tests.architecture.callbacks import CallbackFinder, read_package
from tests.architecture.repository import SOURCE


@pytest.fixture(scope="module")
def package() -> CallbackFinder:
    return read_package(SOURCE)


def test_no_callback_is_assigned_from_outside(package: CallbackFinder) -> None:
    assert package.assigned_from_outside() == []


def test_no_attribute_begins_as_a_placeholder_function(package: CallbackFinder) -> None:
    assert package.replaced_placeholders() == []


OBJECT = """
from collections.abc import Callable

def _nothing() -> None: ...

class Engine:
    ready: bool = False
    def __init__(self, start: Callable[[], None]) -> None:
        self.on_end: Callable[[], None] = _nothing
        self.on_stall: Callable[[], None] | None = None
        self.start = start
        self.speed = 0
    def stop(self) -> None: ...
"""


@pytest.mark.parametrize(
    "statement",
    [
        "engine.on_end = car.park",  # declared as a callback
        "engine.on_stall = found",
        "engine.anything = other.stop",  # a method
        "engine.anything = lambda: None",
        "engine.anything = report",
        "engine.anything = partial(report, 1)",
        "engine.anything = report if car else None",
        "engine.speed, car.engine.anything = 1, report",
        "self.engine.anything = report",
    ],
)
def test_what_puts_a_callback_into_an_object_is_found(statement: str) -> None:
    user = f"def use(self, engine, car, other, found):\n    def report() -> None: ...\n    {statement}\n"

    assert len(CallbackFinder({"engine.py": OBJECT, "user.py": user}).assigned_from_outside()) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "engine.speed = 3",
        "engine.ready = other.ready",
        "engine.on_stall = None",  # nobody is called any more
        "self.on_end = report",  # its own
        "Engine(report)",
        "engine.speed = report()",
    ],
)
def test_what_puts_none_into_an_object_is_not_found(statement: str) -> None:
    user = f"def use(self, engine, other):\n    def report() -> None: ...\n    {statement}\n"

    assert CallbackFinder({"engine.py": OBJECT, "user.py": user}).assigned_from_outside() == []


def test_a_placeholder_is_found_once_it_is_replaced() -> None:
    replaced = "def use(engine, report):\n    engine.on_end = report\n"

    assert CallbackFinder({"engine.py": OBJECT}).replaced_placeholders() == []
    assert CallbackFinder({"engine.py": OBJECT, "user.py": replaced}).replaced_placeholders() == [
        "engine.py:9 Engine.on_end"
    ]
