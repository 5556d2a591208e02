"""The methods of the client are those of the operations."""

import inspect
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct, structs

from ade.client.api import Api
from ade.failures import Backoff
from ade.server.operation import ETagUse
from docs.generators import client
from docs.generators.annotations import Names, imports, text_of
from tests.domain import ROUTE_OF, ROUTES, Page, shape_of


def test_every_generated_module_is_up_to_date() -> None:
    assert [path.name for path, _ in client.stale_modules()] == [], "run `python -m docs.generate`"


def test_no_other_module_is_in_the_package() -> None:
    assert {path.name for path in client.API.glob("*.py")} == set(client.modules())


def test_a_stale_module_is_found(tmp_path: Path) -> None:
    for name, text in client.modules().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "tasks.py").write_text("old\n")
    (tmp_path / "workers.py").unlink()
    assert sorted(path.name for path, _ in client.stale_modules(tmp_path)) == ["tasks.py", "workers.py"]


@pytest.mark.parametrize("operation", sorted(route.operation for route in ROUTES if route.has_method))
def test_a_method_takes_what_its_operation_takes(operation: str) -> None:
    route, shape = ROUTE_OF[operation], shape_of(operation)
    method = getattr(Api, operation)
    assert method.__doc__ == route.summary
    parameters = list(inspect.signature(method).parameters.values())[1:]
    named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    assert [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY] == list(shape.path)
    fields = [field.name for form in (shape.query, shape.body) if form is not None for field in structs.fields(form)]
    tag = ["if_match"] if route.tag in (ETagUse.HEEDED, ETagUse.REQUIRED) else []
    assert named == fields + tag + (["request_key"] if route.takes_key else [])


def test_types_are_written_as_people_write_them() -> None:
    names: Names = set()
    kinds: list[Any] = [
        str | None,
        list[str | Backoff] | None,
        dict[str, Any],
        tuple[int, ...],
        Literal["a", "b"] | None,
        float | datetime,
        Page[Backoff],
    ]
    assert [text_of(kind, names) for kind in kinds] == [
        "str | None",
        "list[str | Backoff] | None",
        "dict[str, Any]",
        "tuple[int, ...]",
        'Literal["a", "b"] | None',
        "float | datetime",
        "Page[Backoff]",
    ]
    assert imports(names) == [
        "from datetime import datetime",
        "from typing import Any, Literal",
        "",
        "from ade.failures import Backoff",
        "from ade.server.pagination import Page",
    ]


class Odd(Struct):
    given: object = object  # no method can have this as its default


def test_what_no_method_can_have_is_refused() -> None:
    with pytest.raises(client.BadOperation, match=r"Odd\.given has a default"):
        list(client._parameters(Odd, set(), set()))
