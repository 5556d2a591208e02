"""Tasks of one request name each other before they have ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade import Task
from ade.errors import DependencyCycle, InvalidTask
from ade.tasks.api.requests import linked
from tests.domain import admit, uuid7

NOW = 1_760_000_000_000


def made(count: int) -> list[Task]:
    return [admit(Task(id=uuid7(NOW, number.to_bytes(10)), name="t"), now=NOW) for number in range(count)]


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """For each task those that it waits for, anywhere in the request, rings included."""
    count = draw(st.integers(1, 8))
    return [draw(st.lists(st.integers(0, count - 1), max_size=3)) for _ in range(count)]


def has_ring(graph: list[list[int]]) -> bool:
    left = {place: set(after) for place, after in enumerate(graph)}
    while free := [place for place, after in left.items() if not after]:
        for place in free:
            del left[place]
        for after in left.values():
            after.difference_update(free)
    return bool(left)


@given(graphs())
def test_every_name_becomes_the_id_of_its_task_unless_they_wait_in_a_ring(graph: list[list[int]]) -> None:
    tasks = made(len(graph))
    wanted = [(f"ref {place}", [f"ref {each}" for each in after]) for place, after in enumerate(graph)]
    if has_ring(graph):
        with pytest.raises(DependencyCycle) as refused:
            linked(tasks, wanted, now=NOW)
        assert "tasks[" in refused.value.detail
        assert all(task.id not in refused.value.detail for task in tasks)
        return
    for task, before, after in zip(linked(tasks, wanted, now=NOW), tasks, graph, strict=True):
        assert task.id == before.id
        assert set(task.depends_on) == {tasks[each].id for each in after}


def test_ids_of_tasks_that_exist_are_taken_as_they_are() -> None:
    [other, task] = made(2)
    [waiting] = linked([task], [(None, [other.id, other.id])], now=NOW)
    assert waiting.depends_on == (other.id,)


@pytest.mark.parametrize("wanted", [[("a", []), ("a", [])], [("a", []), (None, ["b"])], [(None, []), (None, [""])]])
def test_a_name_is_unique_and_known(wanted: list[tuple[str | None, list[str]]]) -> None:
    with pytest.raises(InvalidTask, match=r"tasks\[1\]"):
        linked(made(2), wanted, now=NOW)
