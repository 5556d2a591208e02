"""The keys, the layout of the state, and the scripts of the Redis store, and a worker that uses its protocol."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ade.stores.redis.codec import STATE_FIELDS
from ade.stores.redis.keys import ANY, KEYS
from ade.stores.redis.scripts import LUA, contract, flags, script_names
from docs.generators.tables import listed, table

_WORKER = Path(__file__).resolve().parents[2] / "tests" / "stores" / "redis" / "foreign_worker.py"
_LOCALS = re.compile(r"^local (?P<names>[A-Z_, ]+) = (?P<numbers>[\d, ]+?)(?: -- (?P<comment>.+))?$", re.MULTILINE)
_OF_THE_STORE: Mapping[str, str] = {
    "STAGE": "stage of a pending or stalled task: `ready`, `delayed`, `blocked`, or `parked`",
    "IDEM": "digest of its idempotency key, queue, and name",
    "DIGEST": "digest of its arguments, if it has such a key",
}


class StatePlace(NamedTuple):
    """A position in the array, as lua/lib/fields.lua names it."""

    name: str
    comment: str


def state_places() -> dict[int, StatePlace]:
    """The positions by number."""
    found = {}
    for line in _LOCALS.finditer((LUA / "lib" / "fields.lua").read_text("utf-8")):
        for name, number in zip(line["names"].split(", "), line["numbers"].split(", "), strict=True):
            found[int(number)] = StatePlace(name, line["comment"] or "")
    return found


def redis_keys() -> str:
    rows = [
        [
            f"`{family.pattern}`",
            family.type,
            family.holds,
            family.ends,
            "" if family.type == ANY else family.wrong_type.text,
        ]
        for family in KEYS
    ]
    return table(["key behind the prefix", "type", "what it holds", "ends", "if it has another type"], rows)


def redis_state() -> str:
    fields = {number: field for field, number in STATE_FIELDS.items()}

    def meaning(number: int, place: StatePlace) -> str:
        if number in fields:
            return f"`{fields[number]}`"
        return _OF_THE_STORE.get(place.name) or place.comment

    rows = [[str(number), meaning(number, place)] for number, place in sorted(state_places().items())]
    return table(["place", "what it is"], rows)


def redis_scripts() -> str:
    rows = [[f"`{name}`", contract(name).replace("<", "&lt;"), listed(flags(name))] for name in script_names()]
    return table(["script", "contract", "flags"], rows)


def foreign_worker() -> str:
    return f"```python\n{_WORKER.read_text('utf-8')}```"


REDIS_BLOCKS = {
    "redis-keys": redis_keys,
    "redis-state": redis_state,
    "redis-scripts": redis_scripts,
    "foreign-worker": foreign_worker,
}
