"""One person fills one slot: whether all rules are met together is a matching, and not a count for each."""

from collections.abc import Mapping, Sequence

Slot = tuple[int, int]  # the number of a rule, and of the place in it


def slots_of(needed: Sequence[int]) -> list[Slot]:
    """So many places for each rule."""
    return [(rule, place) for rule, count in enumerate(needed) for place in range(count)]


def fill(needed: Sequence[int], able: Mapping[str, frozenset[int]]) -> dict[Slot, str]:
    """As many slots as can be filled at once, each by another person. `able`: person -> the rules it may answer for.

    The people are taken in the order given, and one who has a slot keeps one: more people never fill fewer.
    """
    filled: dict[Slot, str] = {}
    places = slots_of(needed)
    for person in able:
        _seat(person, places, able, filled, set())
    return filled


def _seat(
    person: str, places: Sequence[Slot], able: Mapping[str, frozenset[int]], filled: dict[Slot, str], tried: set[Slot]
) -> bool:
    """Find a slot for the person, moving others to slots of theirs where that makes room."""
    for slot in places:
        if slot[0] not in able[person] or slot in tried:
            continue
        tried.add(slot)
        if slot not in filled or _seat(filled[slot], places, able, filled, tried):
            filled[slot] = person
            return True
    return False
