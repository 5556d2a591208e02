"""The guard looks at every word of the arguments. Large ones it looks at on a thread, one after the other: whoever
sends them waits for that himself, and keeps nobody else waiting."""

import asyncio
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from ade.core.guard import Case, Guarded, Occasion, Ruling, rule_on

LARGE = 65_536  # bytes
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def judge(rulebook: Guarded, case: Case, occasion: Occasion) -> Ruling:
    """What the first rule that holds says. Never raises."""
    if _size(case) <= LARGE:
        return rule_on(rulebook, case, occasion)
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await asyncio.to_thread(rule_on, rulebook, case, occasion)


def _size(case: Case) -> int:
    if isinstance(case.given, Raw):
        return len(case.given)
    try:
        return len(msgspec.json.encode(case.given))
    except (TypeError, ValueError):  # no JSON, which the guard itself refuses
        return 0
