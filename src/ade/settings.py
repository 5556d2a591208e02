"""Settings: frozen, read once, checked together, and every value remembers where it came from.

Later layers win: defaults, /etc/ade/ade.toml, ~/.config/ade/ade.toml, ./ade.toml,
environment (`ADE_SECTION__KEY`), flags. Durations are seconds and their names end in `_s`.
This module is on the way of every command's start, so it imports little.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo, fields

from ade.core.errors import AdeError
from ade.core.rate import read_rate

SYSTEM_FILE = Path("/etc/ade/ade.toml")
PROJECT_FILE = Path("ade.toml")
ENV_PREFIX = "ADE_"
DEFAULT = "default"

# The upper bounds catch `inf`, and durations that were meant as milliseconds.
_TEN_YEARS_S = 315_360_000
_Seconds = Annotated[float, Meta(gt=0, le=_TEN_YEARS_S)]
_SecondsOrNone = Annotated[float, Meta(ge=0, le=_TEN_YEARS_S)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
_CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class SettingsError(AdeError):
    """A setting is wrong. The message names it and where it came from; correct it and start again."""

    code = "bad_settings"

    def __init__(self, detail: str = "", *, names: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.names = names


def _about(text: str) -> Meta:
    """What a setting means; shown when a value does not fit."""
    return Meta(description=text)


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where records live and how carefully they are written."""

    url: Annotated[str, _about("where records are kept")] = "sqlite:///.ade/ade.db"
    synchronous: Annotated[
        Literal["full", "normal"],
        _about("full: accepted work survives a power cut; normal: it survives a crash of ADE"),
    ] = "full"
    allow_network_fs: Annotated[bool, _about("take a database on a network file system all the same")] = False
    ballast_mb: Annotated[_CountOrNone, _about("disk space kept back for a full disk")] = 16
    min_free_percent: Annotated[float, Meta(ge=0, le=90), _about("free disk space that new work needs")] = 5.0
    wal_alarm_mb: Annotated[_Count, _about("size of the write-ahead log at which an alarm is raised")] = 64
    blob_dir: Annotated[str | None, _about("folder for large payloads; unset: <database>.blobs")] = None
    inline_limit_kb: Annotated[_CountOrNone, _about("payloads above this size go to the blob folder")] = 128
    payload_limit_mb: Annotated[_Count, _about("payloads above this size are refused")] = 64


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store on Redis or Valkey uses its servers."""

    prefix: Annotated[str, _about("what every key begins with")] = "ade:"
    partitions: Annotated[
        int, Meta(ge=1, le=4096), _about("parts a cluster's work is spread over; settled when a store is first used")
    ] = 16
    task_stream: Annotated[str | None, _about("name of the streams of ready tasks; unset: <prefix>queue:tasks")] = None
    group: Annotated[str | None, _about("name of the consumer group; unset: ade-workers")] = None
    result_stream: Annotated[
        str | None, _about("stream of outcomes for other programs; unset: <prefix>queue:results")
    ] = None
    dlq_stream: Annotated[str | None, _about("stream of dead letters for other programs; unset: <prefix>queue:dlq")] = (
        None
    )
    patience_s: Annotated[_Seconds, _about("how long a call goes on trying while servers are away")] = 10.0
    command_timeout_s: Annotated[_Seconds, _about("longest wait for one answer")] = 5.0
    connections: Annotated[
        _Count, _about("connections to one server at most, from one event loop or from all threads without one")
    ] = 32
    durability: Annotated[
        Literal["normal", "strong"],
        _about("strong: what is accepted must be confirmed by replicas, or the caller is told so"),
    ] = "normal"
    replicas: Annotated[_Count, _about("replicas that must confirm when durability is strong")] = 1
    confirm_timeout_s: Annotated[_Seconds, _about("how long to wait for them")] = 1.0
    allow_volatile: Annotated[bool, _about("accept a server that keeps no append-only file")] = False


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker claims, runs and hands back tasks."""

    concurrency: Annotated[_Count, _about("tasks that one worker process runs at once")] = 100
    processes: Annotated[_Count, _about("worker processes to start")] = 1
    queues: Annotated[tuple[str, ...], _about("queues to work on; empty: all of them")] = ()
    lease_s: Annotated[_Seconds, _about("how long a silent worker keeps its tasks")] = 30.0
    heartbeat_s: Annotated[_Seconds, _about("how often leases are renewed")] = 5.0
    grace_s: Annotated[_SecondsOrNone, _about("how long a stopping worker waits for what is running")] = 20.0
    poll_s: Annotated[_Seconds, _about("slow poll that finds work whose wake-up hint was lost")] = 1.0
    batch: Annotated[_Count, _about("tasks claimed in one call at most")] = 100
    threads: Annotated[_Count, _about("threads for functions that are not async")] = 32
    cpu_processes: Annotated[_CountOrNone, _about("processes for CPU-bound functions; 0: one per core")] = 0
    agent: Annotated[str | None, _about("agent that the worker works for, within its capacity; unset: none")] = None
    max_tasks: Annotated[
        _Count | None,
        _about("tasks the agent may have at once, in all its workers; unset: as it is known, or worker.concurrency"),
    ] = None
    lease_guard: Annotated[bool, _about("renew leases from a second process while C code blocks the worker")] = True


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a task that does not say otherwise."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000), _about("runs in total before a task fails for good")] = 3
    timeout_s: Annotated[_SecondsOrNone, _about("longest first run; 0: no limit")] = 0.0
    backoff_base_s: Annotated[_Seconds, _about("delay after the first failed attempt")] = 1.0
    backoff_multiplier: Annotated[float, Meta(ge=1, le=100), _about("growth of the delay per attempt")] = 2.0
    backoff_cap_s: Annotated[_Seconds, _about("longest delay between attempts")] = 300.0
    backoff_jitter: Annotated[float, Meta(ge=0, le=1), _about("share by which a delay varies")] = 0.1
    result_ttl_s: Annotated[_Seconds, _about("how long results are kept")] = 604_800.0


class SweepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Duties done on a timer."""

    interval_s: Annotated[_Seconds, _about("time between two sweeps")] = 1.0
    retention_s: Annotated[_Seconds, _about("how long finished tasks are kept")] = 604_800.0
    dead_letter_retention_s: Annotated[_Seconds, _about("how long dead letters nobody dealt with are kept")] = (
        7_776_000.0
    )
    effect_retention_s: Annotated[_Seconds, _about("how long ctx.once remembers an effect that was done")] = 2_592_000.0
    archive_dir: Annotated[str | None, _about("folder that pruned tasks are written to; unset: none")] = None
    prune_batch: Annotated[_Count, _about("tasks pruned in one transaction at most")] = 1000


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Admission limits that hold where a queue sets none of its own."""

    queue_depth: Annotated[_CountOrNone, _about("unfinished tasks a queue takes in; 0: no limit")] = 0


class LockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Locks on what agents share: how much one may ask for, and what is done about rings."""

    waiters_per_resource: Annotated[_Count, _about("requests that may wait for one resource")] = 1000
    requests_per_owner: Annotated[_Count, _about("locks and places in line that one owner may have")] = 1000
    acquire_rate: Annotated[
        str, _about("how often one owner may ask for locks, such as 100/s or 10/30s; none: as often as it likes")
    ] = "10000/s"
    deadlock_detection: Annotated[
        bool, _about("find agents that wait for each other in a ring, and let one of them give way")
    ] = True


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ADE says about itself."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], _about("least level: debug, info, warning or error")
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "text"], _about("json, text, or auto: text on a terminal, json elsewhere")
    ] = "auto"


class EventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The event log."""

    retention_s: Annotated[_Seconds, _about("how long events are kept")] = 2_592_000.0
    audit_url: Annotated[
        str | None,
        _about(
            "where the audit copy is kept: sqlite:///file.db or postgresql://...; unset: <database>.audit.db, or"
            " .ade/audit.db where the store is no file"
        ),
    ] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, by section. Rules between fields are checked whenever one is made."""

    store: StoreSettings = StoreSettings()
    redis: RedisSettings = RedisSettings()
    worker: WorkerSettings = WorkerSettings()
    task: TaskSettings = TaskSettings()
    sweep: SweepSettings = SweepSettings()
    limits: LimitSettings = LimitSettings()
    locks: LockSettings = LockSettings()
    log: LogSettings = LogSettings()
    events: EventSettings = EventSettings()

    def __post_init__(self) -> None:
        values = dict(self.items())
        rate = self.locks.acquire_rate
        if read_rate(rate) is None and rate != "none":
            sentence = (
                f"locks.acquire_rate = {rate!r} does not fit: write a count and a period, such as 100/s, or none."
            )
            raise SettingsError(sentence, names=("locks.acquire_rate",))
        for holds, first, relation, second, why in _rules(self):
            if not holds:
                sentence = f"{first} ({values[first]}) {relation} {second} ({values[second]}), {why}."
                raise SettingsError(sentence, names=(first, second))

    def items(self) -> Iterator[tuple[str, object]]:
        """Every setting as (dotted name, value)."""
        for name in KNOWN:
            section, key = name.split(".")
            yield name, getattr(getattr(self, section), key)


def _rules(settings: Settings) -> Iterator[tuple[bool, str, str, str, str]]:
    """What must hold between two settings: (holds, first, relation, second, why)."""
    store, worker, task = settings.store, settings.worker, settings.task
    yield (
        worker.heartbeat_s * 3 <= worker.lease_s,
        *("worker.lease_s", "must be at least three times", "worker.heartbeat_s"),
        "or one late heartbeat would cost a worker its tasks",
    )
    yield (
        worker.max_tasks is None or worker.agent is not None,
        *("worker.max_tasks", "needs", "worker.agent"),
        "because it is an agent that has a capacity",
    )
    yield (
        store.inline_limit_kb <= store.payload_limit_mb * 1024,
        *("store.inline_limit_kb", "must not exceed", "store.payload_limit_mb"),
        "or payloads would be refused before they could go to the blob folder",
    )
    yield (
        settings.redis.confirm_timeout_s < settings.redis.command_timeout_s,
        *("redis.confirm_timeout_s", "must be less than", "redis.command_timeout_s"),
        "or the wait for replicas would be taken for a lost answer",
    )
    yield (
        task.backoff_base_s <= task.backoff_cap_s,
        *("task.backoff_base_s", "must not exceed", "task.backoff_cap_s"),
        "because the cap bounds every delay",
    )
    yield (
        settings.events.retention_s >= settings.sweep.retention_s,
        *("events.retention_s", "must be at least", "sweep.retention_s"),
        "or a task on record would have lost its history",
    )


_SECTIONS: Mapping[str, type[Any]] = {section.name: section.type for section in fields(Settings)}
KNOWN: Mapping[str, FieldInfo] = {
    f"{section}.{setting.name}": setting for section, kind in _SECTIONS.items() for setting in fields(kind)
}


class Loaded(msgspec.Struct, frozen=True):
    """The settings in force, and for each dotted name where its value came from."""

    settings: Settings
    origins: Mapping[str, str]


class _Given(msgspec.Struct, frozen=True):
    """One value as some layer gave it."""

    name: str
    value: object
    origin: str
    typed: bool = False  # a file's "5" is text and not a number; elsewhere everything may come as text


def load(
    *,
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] = os.environ,
    files: Sequence[Path] | None = None,
) -> Loaded:
    """Read all layers and check them. Flags are dotted names; one whose value is None was not given."""
    paths = standard_files(env) if files is None else files
    given = [entry for path in paths for entry in _from_file(path)]
    given += _from_environment(env)
    given += [_Given(name, value, "flag") for name, value in (flags or {}).items() if value is not None]

    origins = dict.fromkeys(KNOWN, DEFAULT)
    values: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for entry in given:
        converted = _convert(entry)
        section, key = entry.name.split(".")
        values[section][key] = converted
        origins[entry.name] = entry.origin
    try:
        settings = Settings(**{section: kind(**values[section]) for section, kind in _SECTIONS.items()})
    except SettingsError as error:
        places = ", ".join(f"{name} from {origins[name]}" for name in error.names)
        raise SettingsError(f"{error.detail} ({places})", names=error.names) from None
    return Loaded(settings, origins)


def standard_files(env: Mapping[str, str]) -> list[Path]:
    """The files that are read where they exist, weakest first."""
    home = env.get("HOME")
    is_open = home is not None and os.access(home, os.X_OK)  # a service may be given a home that is closed to it
    user_files = [Path(home, ".config", "ade", "ade.toml")] if home and is_open else []
    return [SYSTEM_FILE, *user_files, PROJECT_FILE]


def _from_file(path: Path) -> Iterator[_Given]:
    try:
        text = path.read_text("utf-8")
        import tomllib  # costs some milliseconds, and often there is no file

        document = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}.") from None
    except ValueError as error:  # bad UTF-8 or bad TOML
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from None
    for section, table in document.items():
        if section not in _SECTIONS and not (isinstance(table, dict) and table):
            raise _unknown(section, str(path))
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: {section} must be a table: write [{section}] above its keys.")
        for key, value in table.items():
            yield _Given(f"{section}.{key}", value, str(path), typed=True)


def _from_environment(env: Mapping[str, str]) -> Iterator[_Given]:
    """Only names with a double underscore are settings; ADE_APP and its like belong to the command line."""
    for variable, text in sorted(env.items()):
        section, separator, key = variable.removeprefix(ENV_PREFIX).lower().partition("__")
        if variable.startswith(ENV_PREFIX) and separator:
            yield _Given(f"{section}.{key}", text, variable)


def _convert(given: _Given) -> object:
    if given.name not in KNOWN:
        raise _unknown(given.name, given.origin)
    wanted = KNOWN[given.name].type
    is_text = isinstance(given.value, str) and not given.typed
    value = _parse(str(given.value), wanted) if is_text else given.value
    try:
        return msgspec.convert(value, wanted, strict=not is_text)
    except msgspec.ValidationError as error:
        about = " ".join(meta.description for meta in wanted.__metadata__ if meta.description)
        sentence = f"{given.origin}: {given.name} = {given.value!r} does not fit ({about}): {error}."
        raise SettingsError(sentence, names=(given.name,)) from None


def _parse(text: str, wanted: Any) -> object:
    """Lists are written with commas; empty text means unset where a setting can be unset."""
    bare = wanted.__origin__
    if get_origin(bare) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if not text and type(None) in get_args(bare):
        return None
    return text


def _unknown(name: str, origin: str) -> SettingsError:
    from difflib import get_close_matches  # slow to import, and only needed here

    likely = {name.partition(".")[2]: name for name in KNOWN} | {name: name for name in (*_SECTIONS, *KNOWN)}
    nearest = get_close_matches(name, likely, n=1, cutoff=0.5)
    hint = f" Did you mean {likely[nearest[0]]}?" if nearest else f" Sections are {', '.join(_SECTIONS)}."
    return SettingsError(f"{origin}: there is no setting {name}.{hint}", names=(name,))
