"""Every setting and feature that is kept in the store, for all processes, and changed while all goes on."""

from collections.abc import Mapping

from msgspec import Struct

from ade.core.approvals.risk import Thresholds
from ade.core.locks.asking import DEFAULT_TTL_MS, LEAST_TTL_MS, LONGEST_TTL_MS

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
