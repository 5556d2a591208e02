"""Tasks created together may wait for each other, but never in a ring."""

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade import Task
from ade.errors import DependencyCycle
from ade.tasks.admission import check_no_cycle
from tests.fuzz.table import passes
from tests.tasks.factories import new_task


def batch(waits_for: Mapping[str, tuple[str, ...]]) -> list[Task]:
    return [new_task(id=task_id, depends_on=others) for task_id, others in waits_for.items()]


def can_all_run(waits_for: Mapping[str, tuple[str, ...]]) -> bool:
    """Kahn's way, as a worker would: run whatever waits for nothing in the batch until nothing moves."""
    left = {task_id: set(others) & set(waits_for) for task_id, others in waits_for.items()}
    while free := [task_id for task_id, others in left.items() if not others]:
        left = {task_id: others - set(free) for task_id, others in left.items() if task_id not in free}
    return not left


names = st.sampled_from("abcdefghij")
graphs = st.dictionaries(names, st.lists(names, max_size=4).map(tuple), max_size=10)


def is_fine(waits_for: Mapping[str, tuple[str, ...]]) -> bool:
    return passes(lambda: check_no_cycle(batch(waits_for)), DependencyCycle)


def test_a_chain_and_a_diamond_are_fine() -> None:
    assert is_fine({"a": (), "b": ("a",), "c": ("b",)})
    assert is_fine({"end": ("left", "right"), "left": ("start",), "right": ("start",), "start": ()})


def test_waiting_for_tasks_outside_the_batch_is_no_ring() -> None:
    assert is_fine({"a": ("stored earlier",), "b": ("stored earlier", "a")})


def test_a_ring_is_named_from_its_beginning_to_its_beginning() -> None:
    with pytest.raises(DependencyCycle) as refusal:
        check_no_cycle(batch({"x": ("a",), "a": ("b",), "b": ("c",), "c": ("a",)}))

    assert refusal.value.detail == "these tasks depend on each other in a cycle: a -> b -> c -> a"


def test_a_task_cannot_wait_for_itself() -> None:
    with pytest.raises(DependencyCycle, match="a -> a"):
        check_no_cycle(batch({"a": ("a",)}))


def test_a_chain_of_twenty_thousand_neither_recurses_nor_crawls() -> None:
    chain = {str(n): (str(n + 1),) for n in range(20_000)}

    check_no_cycle(batch(chain))
    with pytest.raises(DependencyCycle):
        check_no_cycle(batch(chain | {"20000": ("19998",)}))


def test_every_path_through_a_lattice_is_walked_once() -> None:
    """Each layer waits for both tasks of the next: 2^60 paths, 120 tasks."""
    lattice = {f"{side}{n}": (f"a{n + 1}", f"b{n + 1}") for n in range(60) for side in "ab"}

    assert is_fine(lattice)


@given(waits_for=graphs)
def test_a_ring_is_found_exactly_when_not_all_could_run(waits_for: Mapping[str, tuple[str, ...]]) -> None:
    if can_all_run(waits_for):
        check_no_cycle(batch(waits_for))
    else:
        with pytest.raises(DependencyCycle):
            check_no_cycle(batch(waits_for))


@given(waits_for=graphs)
def test_the_ring_it_names_is_really_there(waits_for: Mapping[str, tuple[str, ...]]) -> None:
    try:
        check_no_cycle(batch(waits_for))
    except DependencyCycle as refusal:
        ring = refusal.detail.partition(": ")[2].split(" -> ")
        assert ring[0] == ring[-1]
        assert len(set(ring)) == len(ring) - 1
        assert all(later in waits_for[earlier] for earlier, later in pairwise(ring))
