"""Runtime settings and features, stored for all processes. Stored values override files and defaults."""

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
from ade.stores.repository import Repository, StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite, stale
from ade.stores.wakeups import CachedDocument
from ade.tasks.model import Task

_USUAL = Thresholds()
_LEAST_TTL_S, _LONGEST_TTL_S = LEAST_TTL_MS / 1000, LONGEST_TTL_MS / 1000
_MONTH_S, _YEAR_S = 2_592_000, 31_536_000


class RuntimeSetting(Struct, frozen=True, kw_only=True):
    """The definition of a runtime setting: a number from `least` to `most`, inclusive."""

    default: float
    least: float
    most: float
    about: str


class Feature(Struct, frozen=True, kw_only=True):
    """The definition of a feature that can be enabled or disabled."""

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
    "approval.max_open_per_author": RuntimeSetting(
        default=1_000, least=1, most=1_000_000, about="maximum number of open approvals of one author"
    ),
    "approval.max_open_per_agent": RuntimeSetting(
        default=200, least=1, most=1_000_000, about="maximum number of open approvals of one service account"
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
    "require_code_version": Feature(
        default=False,
        about="a task that was approved before a worker had reported a version of its code must be approved again, and"
        " does not start without a version",
    ),
    "batch_approvals": Feature(default=True, about="one answer may be given to many approvals at once"),
}

# Features with a setting in files, which applies if the store has no value.
IN_FILES: Mapping[str, str] = {"deadlock_detection": "locks.deadlock_detection"}

# Pairs of settings whose first value must not exceed the second.
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
    """The stored value of a setting, or whether a feature is enabled, with author and time of the change."""

    value: float | bool
    by: str | None = None
    at: int = 0


class _SettingFamily(Struct, frozen=True):
    """Settings or features: their repository, and the event type of their changes."""

    shelf: Repository[StoredValue]
    event: str


_VALUES = _SettingFamily(Repository("setting", StoredValue), SETTING_CHANGED)
_SWITCHES = _SettingFamily(Repository("feature", StoredValue), FEATURE_CHANGED)


class RuntimeSettings(Struct, frozen=True, kw_only=True):
    """A snapshot of the stored runtime settings and features."""

    values: Mapping[str, float] = {}
    switches: Mapping[str, bool] = {}

    def get(self, name: str, otherwise: float | None = None) -> float:
        """Return the stored value, else `otherwise` if given, else the default."""
        stored = self.values.get(name)
        if stored is not None:
            return stored
        return SETTINGS[name].default if otherwise is None else otherwise

    def is_on(self, feature: str, otherwise: bool | None = None) -> bool:
        """Return whether a feature is enabled: stored, else `otherwise` if given, else the default."""
        stored = self.switches.get(feature)
        if stored is not None:
            return stored
        return FEATURES[feature].default if otherwise is None else otherwise

    def thresholds(self) -> Thresholds:
        """Return the risk thresholds, always in order: if concurrent changes conflict, the lower values apply."""
        critical = self.get("risk.critical")
        high = min(self.get("risk.high"), critical)
        return Thresholds(medium=min(self.get("risk.medium"), high), high=high, critical=critical)

    def timeouts(self) -> Timeouts:
        """Return the approval timeouts."""
        usual_s, longest_s = self.get("approval.default_timeout_s"), self.get("approval.max_timeout_s")
        return Timeouts(usual_ms=round(usual_s * 1000), longest_ms=round(longest_s * 1000))

    def limited(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return new tasks, with the default timeout (if any) for those without their own."""
        limit_ms = round(self.get(TASK_TIMEOUT) * 1000)
        if not limit_ms or all(task.timeout_ms is not None for task in tasks):
            return tasks
        return [task if task.timeout_ms is not None else structs.replace(task, timeout_ms=limit_ms) for task in tasks]


async def load(stores: Stores) -> RuntimeSettings:
    """Read the stored runtime settings and features."""
    values, switches = await stored_values(stores), await stored_features(stores)
    return RuntimeSettings(
        values={name: float(stored.record.value) for name, stored in values.items()},
        switches={name: bool(stored.record.value) for name, stored in switches.items()},
    )


async def stored_values(stores: Stores) -> dict[str, StoredRecord[StoredValue]]:
    """Return the stored settings by name, with author and time of each change."""
    return {name: stored for name, stored in (await _VALUES.shelf.all(stores)).items() if name in SETTINGS}


async def stored_features(stores: Stores) -> dict[str, StoredRecord[StoredValue]]:
    """Return the stored features by name, with author and time of each change."""
    return {name: stored for name, stored in (await _SWITCHES.shelf.all(stores)).items() if name in FEATURES}


async def default_timeout_ms(stores: Stores) -> int | None:
    """Return the stored default timeout of new tasks, without reading other settings; None if unset."""
    stored = await _VALUES.shelf.get(stores, TASK_TIMEOUT)
    return None if stored is None else round(stored.record.value * 1000) or None


async def set_value(
    stores: Stores, name: str, value: float, *, actor: str | None, seen: int | None = None
) -> RuntimeSettings:
    """Store the value of a setting. `seen` is the version that was read, 0 if unset; None overwrites any version.

    Raises UnknownSetting, InvalidSetting with the bounds, and StaleWrite.
    """
    check_setting(name)
    _check_bounds(name, value)
    return await _change(stores, _VALUES, name, float(value), actor, seen)


async def switch(
    stores: Stores, name: str, is_on: bool, *, actor: str | None, seen: int | None = None
) -> RuntimeSettings:
    """Enable or disable a feature. Raises UnknownSetting, and StaleWrite if the version is not `seen`."""
    check_feature(name)
    return await _change(stores, _SWITCHES, name, is_on, actor, seen)


async def unset(stores: Stores, name: str, *, actor: str | None) -> RuntimeSettings:
    """Reset a setting or feature to files and defaults. Raises UnknownSetting, InvalidSetting."""
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
    """Write a value and its event, unless it is unchanged."""

    async def step() -> None:
        stored = await family.shelf.get(stores, name)
        old, version = (None, 0) if stored is None else (stored.record.value, stored.version)
        write = DocumentWrite(kind=family.shelf.kind, id=name, seen=version)
        if seen is not None and seen != version:
            raise stale(write)
        if old == new:
            return
        _check_order(await load(stores), name, new)
        now = stores.clock.now()
        payload: dict[str, object] = {"name": name, "old": old, "new": new}  # None: no stored value
        if new is not None:
            write = family.shelf.put(name, StoredValue(value=new, by=actor, at=now), seen=version)
        await stores.documents.write([write], [Event(type=family.event, at=now, actor=actor, payload=payload)])

    await (decided(step) if seen is None else step())
    return await load(stores)


def check_setting(name: str) -> None:
    """Raise UnknownSetting if there is no such runtime setting."""
    if name not in SETTINGS:
        raise _unknown(f"there is no run-time setting {name[:100]!r}", name, SETTINGS, "config show")


def check_feature(name: str) -> None:
    """Raise UnknownSetting if there is no such feature."""
    if name not in FEATURES:
        raise _unknown(f"there is no feature {name[:100]!r}", name, FEATURES, "features list")


def _unknown(message: str, name: str, known: Mapping[str, object], command: str) -> UnknownSetting:
    near = close_names(name, known)
    if near:
        return UnknownSetting(f"{message}; did you mean {near[0]}?")
    return UnknownSetting(message, advice=f"`ade {command}` lists them")


def _check_bounds(name: str, value: float) -> None:
    known = SETTINGS[name]
    if isinstance(value, bool) or not math.isfinite(value) or not known.least <= value <= known.most:
        raise InvalidSetting(f"{name} is a number from {known.least:.10g} to {known.most:.10g}, not {value!r:.40}")


def _check_order(known: RuntimeSettings, name: str, new: float | bool | None) -> None:
    """Raise InvalidSetting if the new value conflicts with another setting."""
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
    """Caches the runtime settings and features for one event loop."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores, _newest)
