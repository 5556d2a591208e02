"""Records as they arrive at the other end."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tests.domain import plan_of

R = TypeVar("R", bound=Struct)


def sent(record: Struct) -> dict[str, Any]:
    """What is in the body of the answer."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plan_of(type(record)).out(record)))
    return body


def received(record: R) -> R:
    """What a client makes of it."""
    plan = plan_of(type(record))
    made: R = plan.back(msgspec.json.decode(msgspec.json.encode(plan.out(record)), type=plan.wire))
    return made
