"""Edges between tasks of different partitions, seen from both sides."""

from ade.stores.redis.records import pairs
from ade.stores.redis.survey import Stand, Survey


async def edges_afar(survey: Survey, *, mend: bool) -> list[str]:
    """Sentences on edges of which one side does not know. With `mend`, the sweep is asked to make them whole.

    News travel by way of an outbox: they are learnt before they leave it. So an edge is only wrong if one side lacks
    it, the outbox is empty, and the other side still has it after that.
    """
    told: list[str] = []
    for stand in survey.afar:
        [words] = await survey.link.ask(survey.partition, ("HGETALL", stand.key))
        for other, word in pairs(words):
            _, at, place = word.decode().partition("@")
            if at and await _is_one_sided(survey, stand, other, int(place)):
                told.append(f"{stand.key} names {other.decode()} of partition {place}, which does not know")
                if mend:
                    await _mend(survey, stand, other)
    return told


async def _is_one_sided(survey: Survey, stand: Stand, other: bytes, place: int) -> bool:
    link, prefix = survey.link, survey.link.names[place].prefix
    family = "waiting" if stand.kind == "needs" else "needs"
    if (
        place >= link.partitions
        or (await link.ask(place, ("HEXISTS", f"{prefix}task:{family}:{other.decode()}", stand.argument)))[0]
    ):
        return False
    [posted] = await link.ask(place, ("XLEN", f"{prefix}queue:outbox"))
    unlinked, still = await link.ask(
        survey.partition,
        ("HEXISTS", f"{survey.names.prefix}queue:unlinked", stand.argument if stand.kind == "needs" else ""),
        ("HEXISTS", stand.key, other),
    )
    return not posted and not unlinked and bool(still)


async def _mend(survey: Survey, stand: Stand, other: bytes) -> None:
    if stand.kind == "needs":  # the sweep asks there how things stand
        await survey.link.ask(survey.partition, ("HSET", f"{survey.names.prefix}queue:unlinked", stand.argument, 0))
    else:
        await survey.link.ask(survey.partition, ("HDEL", stand.key, other))
