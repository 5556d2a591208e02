"""Tasks of one request that wait for each other: they name each other before they have ids."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from ade.core.admission import check_no_cycle
from ade.core.errors import DependencyCycle, InvalidTask
from ade.core.ids import is_task_id
from ade.core.records import Task
from ade.core.task import admit

Wanted = tuple[str | None, Sequence[str]]  # what a task is called, and what it waits for: such names, or ids


class CreatedTasks(Struct, frozen=True, kw_only=True):
    """In the order of the request."""

    items: list[Task]
    earlier: list[str]  # ids of those that were there before, under their key


def linked(tasks: Sequence[Task], wanted: Sequence[Wanted], *, now: int) -> list[Task]:
    """The tasks with what they wait for, by id. Raises InvalidTask, and DependencyCycle in the words of the request."""
    ids = _ids(tasks, wanted)
    made = [
        admit(structs.replace(task, depends_on=tuple(_id_of(name, ids, place) for name in after)), now=now)
        if after
        else task
        for place, (task, (_, after)) in enumerate(zip(tasks, wanted, strict=True))
    ]
    try:
        check_no_cycle(made)
    except DependencyCycle as error:
        told = error.detail
        for place, task in enumerate(tasks):
            told = told.replace(task.id, _named(place, wanted[place][0]))
        raise DependencyCycle(f"{told}; nothing was stored") from None
    return made


def _ids(tasks: Sequence[Task], wanted: Sequence[Wanted]) -> Mapping[str, str]:
    ids: dict[str, str] = {}
    for place, (task, (ref, _)) in enumerate(zip(tasks, wanted, strict=True)):
        if ref is not None and ids.setdefault(ref, task.id) != task.id:
            raise InvalidTask(f"{_named(place)}: another task is called {ref[:80]!r} already; nothing was stored")
    return ids


def _id_of(name: str, ids: Mapping[str, str], place: int) -> str:
    if name in ids:
        return ids[name]
    if is_task_id(name):
        return name
    raise InvalidTask(
        f"{_named(place)}: `after` names {name[:80]!r}, which is no `ref` of this request and no task id; nothing was"
        " stored"
    )


def _named(place: int, ref: str | None = None) -> str:
    return f"tasks[{place}]" if ref is None else f"tasks[{place}] ({ref[:80]})"
