"""How hard random tests try: a few examples in `make test`, and the same tests in depth in `make test-all`."""

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

# Set by `make test-all`. Not an ADE_ name: those are settings of the programs under test.
IS_DEEP = os.environ.get("TEST_DEPTH") == "deep"
_SHARE = 5  # of what is tried in depth, a fifth is tried quickly
_FEW = 20


def examples(in_depth: int) -> int:
    """How many examples a test tries that names a number of its own."""
    return in_depth if IS_DEEP else max(in_depth // _SHARE, 3)


def sampled(values: Sequence[Any], quick: int) -> list[Any]:
    """Parameters of a scenario that is long when it is told for each: so many for `make test`, spread over all of them;
    the others are marked `long`.
    """
    chosen = {number * len(values) // quick for number in range(quick)}
    return [
        value if number in chosen else pytest.param(value, marks=pytest.mark.long)
        for number, value in enumerate(values)
    ]


def load_profile() -> None:
    """The profile for tests that name no number.

    A busy machine is no reason for a property to fail, so examples have no deadline. With CI=true every run tries the
    same examples: a red build is about the change, not about luck. Runs at a desk try others each time.
    """
    same = {"derandomize": True, "database": None} if os.environ.get("CI") == "true" else {}
    settings.register_profile("ade", deadline=None, print_blob=True, max_examples=100 if IS_DEEP else _FEW, **same)  # type: ignore[arg-type]  # by their names
    settings.load_profile("ade")


def is_random(item: pytest.Item) -> bool:
    """Whether hypothesis makes up what the test tries: a function with `given`, or the test of a state machine."""
    return is_hypothesis_test(getattr(item, "obj", None))
