"""Settings and features that are changed while all goes on. What the store has goes before files and defaults."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ade.core.approvals.refusals import InvalidSetting, UnknownSetting
from ade.core.approvals.risk import Thresholds
from ade.core.documents import DocumentWrite, stale
from ade.core.events import Event
from ade.core.records import Task
from ade.governance.following import Followed
from ade.governance.kept import Kept, Shelf, decided
from ade.governance.runtime_names import FEATURES, IN_ORDER, SETTINGS
from ade.ports import Stores

if TYPE_CHECKING:
    from ade.core.approvals.choosing import Timeouts

SETTING_CHANGED, FEATURE_CHANGED = "setting.changed", "feature.changed"
TASK_TIMEOUT = "task.default_timeout_s"


class Stored(Struct, frozen=True, kw_only=True):
    """The value of a setting, or whether a feature is on."""

    value: float | bool
    by: str | None = None
    at: int = 0


class _Family(Struct, frozen=True):
    """Settings or features: where they are kept, and what tells of their changes."""

    shelf: Shelf[Stored]
    event: str


_VALUES = _Family(Shelf("setting", Stored), SETTING_CHANGED)
_SWITCHES = _Family(Shelf("feature", Stored), FEATURE_CHANGED)


class Runtime(Struct, frozen=True, kw_only=True):
    """What the store has of them, as it was at one moment."""

    values: Mapping[str, float] = {}
    switches: Mapping[str, bool] = {}

    def get(self, name: str, otherwise: float | None = None) -> float:
        """What the store says; else what the caller's own settings do, if any; else the default."""
        stored = self.values.get(name)
        if stored is not None:
            return stored
        return SETTINGS[name].default if otherwise is None else otherwise

    def is_on(self, feature: str, otherwise: bool | None = None) -> bool:
        stored = self.switches.get(feature)
        if stored is not None:
            return stored
        return FEATURES[feature].default if otherwise is None else otherwise

    def thresholds(self) -> Thresholds:
        """Never out of order, even if two people have changed two of them at once: then the lower ones count."""
        critical = self.get("risk.critical")
        high = min(self.get("risk.high"), critical)
        return Thresholds(medium=min(self.get("risk.medium"), high), high=high, critical=critical)

    def timeouts(self) -> "Timeouts":
        """Of approvals."""
        usual_s, longest_s = self.get("approval.default_timeout_s"), self.get("approval.max_timeout_s")
        from ade.core.approvals.choosing import Timeouts  # with the rules of policies, which most do without

        return Timeouts(usual_ms=round(usual_s * 1000), longest_ms=round(longest_s * 1000))

    def limited(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """New tasks, those without a limit of their own with the one that the store has, if any."""
        limit_ms = round(self.get(TASK_TIMEOUT) * 1000)
        if not limit_ms or all(task.timeout_ms is not None for task in tasks):
            return tasks
        return [task if task.timeout_ms is not None else structs.replace(task, timeout_ms=limit_ms) for task in tasks]


async def load(stores: Stores) -> Runtime:
    values, switches = await kept_values(stores), await kept_switches(stores)
    return Runtime(
        values={name: float(kept.record.value) for name, kept in values.items()},
        switches={name: bool(kept.record.value) for name, kept in switches.items()},
    )


async def kept_values(stores: Stores) -> dict[str, Kept[Stored]]:
    """The settings that the store has, with who has said so, and when."""
    return {name: kept for name, kept in (await _VALUES.shelf.all(stores)).items() if name in SETTINGS}


async def kept_switches(stores: Stores) -> dict[str, Kept[Stored]]:
    return {name: kept for name, kept in (await _SWITCHES.shelf.all(stores)).items() if name in FEATURES}


async def default_timeout_ms(stores: Stores) -> int | None:
    """For who needs nothing else: the limit of a new task that has none of its own."""
    kept = await _VALUES.shelf.get(stores, TASK_TIMEOUT)
    return None if kept is None else round(kept.record.value * 1000) or None


async def set_value(stores: Stores, name: str, value: float, *, actor: str | None, seen: int | None = None) -> Runtime:
    """What the store says from now on. `seen` is the version this was decided on, 0 where nothing was stored; None:
    whichever there is. Raises UnknownSetting, InvalidSetting with the bounds, and StaleWrite."""
    check_setting(name)
    _check_bounds(name, value)
    return await _change(stores, _VALUES, name, float(value), actor, seen)


async def switch(stores: Stores, name: str, is_on: bool, *, actor: str | None, seen: int | None = None) -> Runtime:
    """Raises UnknownSetting and, if it is not as it was `seen`, StaleWrite."""
    check_feature(name)
    return await _change(stores, _SWITCHES, name, is_on, actor, seen)


async def unset(stores: Stores, name: str, *, actor: str | None) -> Runtime:
    """Back to what files and defaults say, for a setting or a feature. Raises UnknownSetting, InvalidSetting."""
    if name in FEATURES:
        return await _change(stores, _SWITCHES, name, None, actor)
    check_setting(name)
    return await _change(stores, _VALUES, name, None, actor)


async def _change(
    stores: Stores, family: _Family, name: str, new: float | bool | None, actor: str | None, seen: int | None = None
) -> Runtime:
    """Write it and tell of it, unless it is so already."""

    async def step() -> None:
        kept = await family.shelf.get(stores, name)
        old, version = (None, 0) if kept is None else (kept.record.value, kept.version)
        write = DocumentWrite(kind=family.shelf.kind, id=name, seen=version)
        if seen is not None and seen != version:
            raise stale(write)
        if old == new:
            return
        _check_order(await load(stores), name, new)
        now = stores.clock.now()
        payload: dict[str, object] = {"name": name, "old": old, "new": new}  # None: nothing is in the store
        if new is not None:
            write = family.shelf.put(name, Stored(value=new, by=actor, at=now), seen=version)
        await stores.documents.write([write], [Event(type=family.event, at=now, actor=actor, payload=payload)])

    await (decided(step) if seen is None else step())
    return await load(stores)


def check_setting(name: str) -> None:
    if name not in SETTINGS:
        raise _unknown(f"no run-time setting is called {name[:100]!r}", name, SETTINGS, "config show")


def check_feature(name: str) -> None:
    if name not in FEATURES:
        raise _unknown(f"no feature is called {name[:100]!r}", name, FEATURES, "features list")


def _unknown(told: str, name: str, known: Mapping[str, object], command: str) -> UnknownSetting:
    from difflib import get_close_matches  # slow to load, and only needed here

    near = get_close_matches(name, known, n=1)
    if near:
        return UnknownSetting(f"{told}; did you mean {near[0]}?")
    return UnknownSetting(told, advice=f"`ade {command}` shows those there are")


def _check_bounds(name: str, value: float) -> None:
    known = SETTINGS[name]
    if isinstance(value, bool) or not math.isfinite(value) or not known.least <= value <= known.most:
        raise InvalidSetting(f"{name} is a number from {known.least:.10g} to {known.most:.10g}, not {value!r:.40}")


def _check_order(known: Runtime, name: str, new: float | bool | None) -> None:
    """Whether it would fit to the others."""
    rest = {key: value for key, value in known.values.items() if key != name}
    after = Runtime(values=rest if new is None else {**rest, name: float(new)})
    for lower, upper in IN_ORDER:
        if name in (lower, upper) and after.get(lower) > after.get(upper):
            raise InvalidSetting(
                f"{lower} ({after.get(lower):.10g}) must not be above {upper} ({after.get(upper):.10g});"
                " change the other one first"
            )


async def _newest(stores: Stores, _known: Runtime | None) -> Runtime:
    return await load(stores)


class RuntimeCache(Followed[Runtime]):
    """What the store has of settings and features, for one event loop."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores, _newest)
