"""Arguments and results are checked against the signature, at both ends, and errors say what would be right."""

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from msgspec import Meta, Raw
from pydantic import BaseModel, Field

from ade.errors import InvalidArguments, InvalidResult, InvalidTask
from tests.domain import Signature


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Label(msgspec.Struct):
    text: str


class Options(TypedDict, total=False):
    deep: bool


class Owner(BaseModel):
    name: str


class Order(BaseModel):
    number: int = Field(alias="no")
    owner: Owner | None = None


class FakeContext:
    __ade_context__ = True


def summarise(url: str, limit: int = 500) -> str:
    return url[:limit]


def everything(
    count: int,
    point: Point,
    label: Label | None = None,
    colour: Colour = Colour.RED,
    when: datetime | None = None,
    order: Order | None = None,
    folder: Path | None = None,
    options: Options | None = None,
    blob: bytes = b"",
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5,
    anything: Any = None,
) -> list[Point]:
    return [point] * count


def bound(function: Any, *args: Any, **kwargs: Any) -> Any:
    return msgspec.json.decode(Signature.of(function).bind(args, kwargs))


def test_positional_and_named_arguments_become_one_object() -> None:
    assert bound(summarise, "https://example.org", limit=3) == {"url": "https://example.org", "limit": 3}


def test_defaults_are_not_written_down_so_that_a_new_default_applies_to_waiting_tasks() -> None:
    assert bound(summarise, "u") == {"url": "u"}


def test_rich_types_arrive_as_they_were_sent() -> None:
    signature = Signature.of(everything)
    sent = {
        "count": 2,
        "point": Point(1),
        "label": Label("a"),
        "colour": Colour.RED,
        "when": datetime(2030, 1, 1, tzinfo=UTC),
        "order": Order(no=7, owner=Owner(name="Ada")),
        "folder": Path("/srv"),
        "options": {"deep": True},
        "blob": b"\x00\xff",
        "share": 0.25,
        "anything": {"a": [1, 2.5, None, "text"]},
    }

    assert signature.decode(signature.bind((), sent)) == sent


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"limit": True}, "argument `limit`: expected `int`, got `bool`"),
        ({"limit": "5"}, "argument `limit`: expected `int`, got `str`"),
        ({"limit": 5.0}, "argument `limit`: expected `int`, got `float`"),
        ({"url": 5}, "argument `url`: expected `str`, got `int`"),
        ({"url": b"https"}, "argument `url`: expected `str`, got `bytes`"),
        ({"url": None}, "argument `url`: expected `str`, got `null`"),
        ({"url": "\ud800"}, "not valid Unicode"),
        ({"limt": 5}, "unknown: limt (did you mean limit?)"),
        ({"\udcff": 5}, r"unknown: \udcff;"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidArguments) as refusal:
        bound(summarise, **({"url": "u"} | arguments))

    assert complaint in refusal.value.detail
    assert refusal.value.detail.encode()  # what cannot be printed hides the complaint
    assert "the signature is summarise(url: str, limit: int = 500) -> str" in refusal.value.detail


def test_everything_wrong_with_the_names_is_said_at_once() -> None:
    with pytest.raises(InvalidArguments, match=r"missing: url; unknown: uri \(did you mean url\?\), verbose"):
        bound(summarise, uri="u", verbose=True)


def test_too_many_and_repeated_arguments_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="takes 2 arguments by position, 3 were given"):
        bound(summarise, "u", 3, 4)
    with pytest.raises(InvalidArguments, match="given twice: url"):
        bound(summarise, "u", url="v")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_are_refused_wherever_they_hide(number: float) -> None:
    with pytest.raises(InvalidArguments, match="NaN and Infinity"):
        bound(everything, 1, Point(1), anything=[None, {"deep": (number,)}])
    with pytest.raises(InvalidArguments, match="NaN and Infinity"):
        bound(everything, 1, Point(1), anything=number)


def test_null_is_no_reason_to_suspect_a_number() -> None:
    assert bound(everything, 1, Point(1), anything=[None, 1.5])["anything"] == [None, 1.5]


def test_what_json_cannot_carry_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(InvalidArguments, match="type object cannot be sent as JSON"):
        bound(everything, 1, Point(1), anything=object())
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        bound(everything, 1, Point(1), anything=circle)


def test_nested_values_are_checked_and_located() -> None:
    with pytest.raises(InvalidArguments, match=r"argument `point\.x`: expected `int`, got `str`"):
        bound(everything, 1, Point("1"))  # type: ignore[arg-type] # the mistake in question
    with pytest.raises(InvalidArguments, match="argument `share`"):
        bound(everything, 1, Point(1), share=1.5)
    with pytest.raises(InvalidArguments, match=r"argument `order`: no: Field required; owner\.name"):
        bound(everything, 1, Point(1), order={"owner": {"name": 3}})


def test_stored_arguments_are_checked_again_when_they_are_read() -> None:
    signature = Signature.of(summarise)

    with pytest.raises(InvalidArguments, match="unknown: language"):
        signature.decode(Raw(b'{"url":"u","language":"de"}'))
    with pytest.raises(InvalidArguments, match="missing: url"):
        signature.decode(Raw(b"[]"))
    with pytest.raises(InvalidArguments, match="missing: url"):
        signature.decode(Raw(b'{"url":'))


def collect(first: int, second: int = 2, /, *rest: int, scale: float = 1.0, **named: str) -> Any:
    return first, second, rest, scale, named


def test_variable_arguments_keep_their_places_and_types() -> None:
    signature = Signature.of(collect)

    raw = signature.bind((1, 5, 6, 7), {"scale": 2, "colour": "red"})
    args, kwargs = signature.place(signature.decode(raw), None)

    assert collect(*args, **kwargs) == (1, 5, (6, 7), 2.0, {"colour": "red"})
    with pytest.raises(InvalidArguments, match="expected `str`, got `int`"):
        signature.bind((1,), {"colour": 3})
    with pytest.raises(InvalidArguments, match="expected `int`, got `str`"):
        signature.bind((1, 2, "three"), {})


def test_missing_positional_arguments_get_their_defaults() -> None:
    signature = Signature.of(collect)
    args, kwargs = signature.place(signature.decode(signature.bind((1,), {})), None)

    assert collect(*args, **kwargs) == (1, 2, (), 1.0, {})


def test_the_context_is_no_argument_wherever_it_stands() -> None:
    context = FakeContext()

    def first(ctx: FakeContext, number: int) -> Any:
        return ctx, number

    def last(number: int, *, ctx: FakeContext | None = None) -> Any:
        return ctx, number

    def before_rest(number: int, ctx: FakeContext, *rest: int) -> Any:
        return ctx, number, rest

    for function, given, answer in (
        (first, (3,), (context, 3)),
        (last, (3,), (context, 3)),
        (before_rest, (3,), (context, 3, ())),
        (before_rest, (3, 4), (context, 3, (4,))),
    ):
        signature = Signature.of(function)
        args, kwargs = signature.place(signature.decode(signature.bind(given, {})), context)
        assert function(*args, **kwargs) == answer
        assert "ctx" not in signature.schema()["properties"]


def test_a_context_cannot_be_smuggled_in_as_an_argument() -> None:
    def handler(ctx: FakeContext, number: int) -> None: ...

    with pytest.raises(InvalidArguments, match="unknown: ctx"):
        Signature.of(handler).decode(Raw(b'{"number":1,"ctx":{}}'))


def test_results_are_checked_against_the_declared_type() -> None:
    signature = Signature.of(everything)

    assert signature.decode_result(signature.encode_result([Point(1, 2)])) == [Point(1, 2)]
    with pytest.raises(InvalidResult, match=r"result `\[0\]`: expected `object`, got `int`"):
        signature.encode_result([1])
    with pytest.raises(InvalidResult, match="expected `array`, got `null`"):
        signature.encode_result(None)
    with pytest.raises(InvalidResult, match="the stored result of everything does not fit"):
        signature.decode_result(Raw(b"3"))


def test_a_result_without_a_declared_type_may_be_any_json() -> None:
    def handler():  # type: ignore[no-untyped-def] # the case in question
        ...

    assert bytes(Signature.of(handler).encode_result({"a": {1}})) == b'{"a":[1]}'
    with pytest.raises(InvalidResult, match="NaN"):
        Signature.of(handler).encode_result(float("nan"))


def test_types_that_cannot_travel_are_refused_when_the_task_is_defined() -> None:
    class Socket: ...

    def takes(socket: Socket) -> None: ...

    def returns() -> Socket: ...  # type: ignore[empty-body] # never called

    def takes_list(sockets: list[Socket]) -> None: ...

    with pytest.raises(InvalidTask, match="parameter 'socket' of task 'takes' has type"):
        Signature.of(takes)
    with pytest.raises(InvalidTask, match="the result of task 'returns' has type"):
        Signature.of(returns)
    with pytest.raises(InvalidTask, match="parameter 'sockets'"):
        Signature.of(takes_list)


def test_annotations_that_cannot_be_resolved_are_named() -> None:
    def handler(x: "Missing") -> None:  # type: ignore[name-defined] # noqa: F821 # the case in question
        ...

    with pytest.raises(InvalidTask, match="'Missing'"):
        Signature.of(handler)


def test_the_schema_describes_the_arguments_for_forms() -> None:
    schema = Signature.of(everything).schema()

    assert schema["required"] == ["count", "point"]
    assert schema["properties"]["count"] == {"type": "integer"}
    assert schema["properties"]["blob"]["default"] == ""
    assert schema["additionalProperties"] is False
    assert {"Point", "Label", "Owner"} <= schema["$defs"].keys()
    assert Signature.of(collect).schema()["additionalProperties"] == {"type": "string"}


def test_very_deep_nesting_is_refused_before_it_reaches_a_store() -> None:
    def nested(levels: int) -> list[object]:
        inner: list[object] = []
        for _ in range(levels - 1):
            inner = [inner]
        return inner

    def keep(tree: list[Any]) -> None: ...

    signature = Signature.of(keep)
    signature.bind((nested(199),), {})
    for levels in (200, 500, 5_000):
        with pytest.raises(InvalidArguments):
            signature.bind((nested(levels),), {})
