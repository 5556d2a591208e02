"""Settings and features that are changed while all goes on. What the store has goes before files and defaults."""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from ade.approvals.errors import InvalidSetting, UnknownSetting
from ade.approvals.model import Timeouts
from ade.approvals.risk import Thresholds
from ade.errors import close_names
from ade.events.model import Event
from ade.locks.requests import DEFAULT_TTL_MS, LEAST_TTL_MS, LONGEST_TTL_MS
from ade.stores.ports import Stores
from ade.stores.repository import CachedDocument, Repository, StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite, stale
from ade.tasks.model import Task

# Every setting and feature that is kept in the store, for all processes, and changed while all goes on.


_USUAL = Thresholds()
_LEAST_TTL_S, _LONGEST_TTL_S = LEAST_TTL_MS / 1000, LONGEST_TTL_MS / 1000
_MONTH_S, _YEAR_S = 2_592_000, 31_536_000


class RuntimeSetting(Struct, frozen=True, kw_only=True):
    """A number within bounds, both included."""

    default: float
    least: float
    most: float
    about: str


class Feature(Struct, frozen=True, kw_only=True):
    default: bool
    about: str


SETTINGS: Mapping[str, RuntimeSetting] = {
    "lock.default_ttl_s": RuntimeSetting(
        default=DEFAULT_TTL_MS / 1000, least=_LEAST_TTL_S, most=_LONGEST_TTL_S, about="lease of a lock that names none"
    ),
    "lock.max_ttl_s": RuntimeSetting(
        default=_LONGEST_TTL_S, least=_LEAST_TTL_S, most=_LONGEST_TTL_S, about="longest lease a lock may ask for"
    ),
    "lock.heartbeat_interval_s": RuntimeSetting(
        default=10, least=0.1, most=_LONGEST_TTL_S, about="how often a lock is renewed at least"
    ),
    "approval.default_timeout_s": RuntimeSetting(
        default=86_400, least=1, most=_MONTH_S, about="how long an approval that names no time stays open"
    ),
    "approval.max_timeout_s": RuntimeSetting(
        default=_MONTH_S, least=1, most=_MONTH_S, about="longest time an approval may stay open"
    ),
    "task.default_timeout_s": RuntimeSetting(
        default=0, least=0, most=_YEAR_S, about="longest first run of a task that names none; 0: no limit"
    ),
    "risk.medium": RuntimeSetting(default=_USUAL.medium, least=0, most=100, about="score from which a risk is medium"),
    "risk.high": RuntimeSetting(default=_USUAL.high, least=0, most=100, about="score from which a risk is high"),
    "risk.critical": RuntimeSetting(
        default=_USUAL.critical, least=0, most=100, about="score from which a risk is critical"
    ),
}

FEATURES: Mapping[str, Feature] = {
    "auto_approve_low_risk": Feature(
        default=False, about="tasks of a low risk pass without people where their policies allow it"
    ),
    "deadlock_detection": Feature(
        default=True, about="agents that wait for each other in a ring are found, and one gives way"
    ),
    "batch_approvals": Feature(default=True, about="one answer may be given to many approvals at once"),
}

# Features that a settings file has a word on, which counts where the store says nothing.
IN_FILES: Mapping[str, str] = {"deadlock_detection": "locks.deadlock_detection"}

# What must hold between two settings: the first is not above the second.
IN_ORDER = (
    ("lock.default_ttl_s", "lock.max_ttl_s"),
    ("lock.heartbeat_interval_s", "lock.default_ttl_s"),
    ("approval.default_timeout_s", "approval.max_timeout_s"),
    ("risk.medium", "risk.high"),
    ("risk.high", "risk.critical"),
)


SETTING_CHANGED, FEATURE_CHANGED = "setting.changed", "feature.changed"
TASK_TIMEOUT = "task.default_timeout_s"


class StoredValue(Struct, frozen=True, kw_only=True):
    """The value of a setting, or whether a feature is on."""

    value: float | bool
    by: str | None = None
    at: int = 0


class _SettingFamily(Struct, frozen=True):
    """Settings or features: where they are kept, and what tells of their changes."""

    shelf: Repository[StoredValue]
    event: str


_VALUES = _SettingFamily(Repository("setting", StoredValue), SETTING_CHANGED)
_SWITCHES = _SettingFamily(Repository("feature", StoredValue), FEATURE_CHANGED)


class RuntimeSettings(Struct, frozen=True, kw_only=True):
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

    def timeouts(self) -> Timeouts:
        """Of approvals."""
        usual_s, longest_s = self.get("approval.default_timeout_s"), self.get("approval.max_timeout_s")
        return Timeouts(usual_ms=round(usual_s * 1000), longest_ms=round(longest_s * 1000))

    def limited(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """New tasks, those without a limit of their own with the one that the store has, if any."""
        limit_ms = round(self.get(TASK_TIMEOUT) * 1000)
        if not limit_ms or all(task.timeout_ms is not None for task in tasks):
            return tasks
        return [task if task.timeout_ms is not None else structs.replace(task, timeout_ms=limit_ms) for task in tasks]


async def load(stores: Stores) -> RuntimeSettings:
    values, switches = await stored_values(stores), await stored_features(stores)
    return RuntimeSettings(
        values={name: float(kept.record.value) for name, kept in values.items()},
        switches={name: bool(kept.record.value) for name, kept in switches.items()},
    )


async def stored_values(stores: Stores) -> dict[str, StoredRecord[StoredValue]]:
    """The settings that the store has, with who has said so, and when."""
    return {name: kept for name, kept in (await _VALUES.shelf.all(stores)).items() if name in SETTINGS}


async def stored_features(stores: Stores) -> dict[str, StoredRecord[StoredValue]]:
    return {name: kept for name, kept in (await _SWITCHES.shelf.all(stores)).items() if name in FEATURES}


async def default_timeout_ms(stores: Stores) -> int | None:
    """For who needs nothing else: the limit of a new task that has none of its own."""
    kept = await _VALUES.shelf.get(stores, TASK_TIMEOUT)
    return None if kept is None else round(kept.record.value * 1000) or None


async def set_value(
    stores: Stores, name: str, value: float, *, actor: str | None, seen: int | None = None
) -> RuntimeSettings:
    """What the store says from now on. `seen` is the version this was decided on, 0 where nothing was stored; None:
    whichever there is. Raises UnknownSetting, InvalidSetting with the bounds, and StaleWrite."""
    check_setting(name)
    _check_bounds(name, value)
    return await _change(stores, _VALUES, name, float(value), actor, seen)


async def switch(
    stores: Stores, name: str, is_on: bool, *, actor: str | None, seen: int | None = None
) -> RuntimeSettings:
    """Raises UnknownSetting and, if it is not as it was `seen`, StaleWrite."""
    check_feature(name)
    return await _change(stores, _SWITCHES, name, is_on, actor, seen)


async def unset(stores: Stores, name: str, *, actor: str | None) -> RuntimeSettings:
    """Back to what files and defaults say, for a setting or a feature. Raises UnknownSetting, InvalidSetting."""
    if name in FEATURES:
        return await _change(stores, _SWITCHES, name, None, actor)
    check_setting(name)
    return await _change(stores, _VALUES, name, None, actor)


async def _change(
    stores: Stores,
    family: _SettingFamily,
    name: str,
    new: float | bool | None,
    actor: str | None,
    seen: int | None = None,
) -> RuntimeSettings:
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
            write = family.shelf.put(name, StoredValue(value=new, by=actor, at=now), seen=version)
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
    near = close_names(name, known)
    if near:
        return UnknownSetting(f"{told}; did you mean {near[0]}?")
    return UnknownSetting(told, advice=f"`ade {command}` shows those there are")


def _check_bounds(name: str, value: float) -> None:
    known = SETTINGS[name]
    if isinstance(value, bool) or not math.isfinite(value) or not known.least <= value <= known.most:
        raise InvalidSetting(f"{name} is a number from {known.least:.10g} to {known.most:.10g}, not {value!r:.40}")


def _check_order(known: RuntimeSettings, name: str, new: float | bool | None) -> None:
    """Whether it would fit to the others."""
    rest = {key: value for key, value in known.values.items() if key != name}
    after = RuntimeSettings(values=rest if new is None else {**rest, name: float(new)})
    for lower, upper in IN_ORDER:
        if name in (lower, upper) and after.get(lower) > after.get(upper):
            raise InvalidSetting(
                f"{lower} ({after.get(lower):.10g}) must not be above {upper} ({after.get(upper):.10g});"
                " change the other one first"
            )


async def _newest(stores: Stores, _known: RuntimeSettings | None) -> RuntimeSettings:
    return await load(stores)


class RuntimeSettingsCache(CachedDocument[RuntimeSettings]):
    """What the store has of settings and features, for one event loop."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores, _newest)
