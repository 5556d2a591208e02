"""EffectStore on Redis: the ledger of side effects, spread over the partitions by their keys."""

import hashlib
from typing import Any

from msgspec import Raw

from ade.core.errors import StaleLease
from ade.core.records import Effect
from ade.stores.redis.codec import as_text
from ade.stores.redis.link import Link
from ade.stores.redis.spreading import spread
from ade.stores.redis.timing import Timing
from ade.stores.redis.tokens import new_token


class RedisEffects:
    def __init__(self, link: Link, timing: Timing) -> None:
        self._link = link
        self._timing = timing

    async def begin(self, key: str, run_id: str) -> Effect:
        owner, done, answer, at = await self._run("begin_effect", key, run_id=run_id)
        return Effect(
            key=key,
            run_id=owner.decode(),
            done=done == b"1",
            answer=None if answer is None else Raw(answer),
            at=int(at),
        )

    async def finish(self, key: str, run_id: str, answer: Raw) -> None:
        if not await self._run("finish_effect", key, run_id=run_id, answer=as_text(bytes(answer))):
            raise StaleLease(f"effect {key!r} is no longer entered for run {run_id}")

    async def forget(self, key: str) -> None:
        await self._run("forget_effect", key, token=new_token())

    async def prune_effects(self, before_ms: int, limit: int) -> int:
        pruned = 0
        for partition in range(self._link.partitions):
            if pruned < limit:
                request = {"before": before_ms, "limit": limit - pruned, "token": new_token()}
                pruned += await self._link.run("prune_effects", partition, {**self._timing(), **request})
        return pruned

    async def is_live(self, run_id: str) -> bool:
        for partition in range(self._link.partitions):
            if await self._link.run("is_live", partition, {**self._timing(), "run_id": run_id}):
                return True
        return False

    async def _run(self, name: str, key: str, **request: Any) -> Any:
        digest = hashlib.sha256(key.encode()).hexdigest()
        partition = spread(digest, self._link.partitions)
        return await self._link.run(name, partition, {**self._timing(), "digest": digest, "key": key, **request})
