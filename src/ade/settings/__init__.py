"""Settings: frozen, read once, checked together, and every value remembers where it came from.

Later layers override earlier ones: defaults, /etc/ade/ade.toml, ~/.config/ade/ade.toml, ./ade.toml, environment
(`ADE_SECTION__KEY`), flags. Durations are in seconds, and their names end in `_s`. Every command imports this module at
start, so it imports little itself.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from ade.common.gcra import read_rate
from ade.errors import AdeError, close_names
from ade.server.addresses import is_loopback, read_networks
from ade.settings.sections import (
    AgentSettings,
    ClientSettings,
    EventSettings,
    FigureSettings,
    HttpSettings,
    LimitSettings,
    LockSettings,
    LogSettings,
    NotificationSettings,
    RedisSettings,
    SmtpSettings,
    StoreSettings,
    SweepSettings,
    TaskSettings,
    TraceSettings,
    WebhookSettings,
    WorkerSettings,
)
from ade.tasks.model import capabilities_of

USER_VARIABLE = "ADE_USER"  # the account that acts, and writes tasks
_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9._-]{0,250}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\]", re.ASCII | re.IGNORECASE)
_BASE_PATH = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)+", re.ASCII)
_RATE_WRONG = "write a count and a period, such as 100/s, or none"


def checked(
    redis: RedisSettings, locks: LockSettings, http: HttpSettings, webhooks: WebhookSettings
) -> Iterator[tuple[str, str]]:
    """Check single settings beyond their type. Yields the name of each invalid setting and the reason."""
    yield from _checked_names(redis)
    rates = {"locks.acquire_rate": locks.acquire_rate}
    rates |= {f"http.{traffic}_rate": text for traffic, text in http.rates().items()}
    yield from ((name, _RATE_WRONG) for name, text in rates.items() if text != "none" and read_rate(text) is None)
    if any(char.isspace() or char in "/[]@#?" for char in http.host):
        yield "http.host", "write one address or name, such as 127.0.0.1 or ::1, without a port"
    if http.base_path and not _BASE_PATH.fullmatch(http.base_path):
        yield "http.base_path", "write it like /ade or /tools/ade, with a slash only before each part"
    for host in http.allowed_hosts:
        if not _HOST.fullmatch(host):
            yield "http.allowed_hosts", f"{host!r} is no name of a host; write it without scheme and port"
    for pattern in http.masked_patterns:
        try:
            re.compile(pattern)
        except re.error as wrong:
            yield "http.masked_patterns", f"{pattern!r} is no regular expression ({wrong})"
    if http.trusted_proxies:
        yield from _checked_networks(http.trusted_proxies)
    if webhooks.allowed_networks or webhooks.refused_networks:
        yield from _checked_reach(webhooks)


_PUBLIC_URL = re.compile(r"https?://[a-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?", re.IGNORECASE | re.ASCII)
_SENDER = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,188}", re.ASCII)


def checked_mail(notifications: NotificationSettings, smtp: SmtpSettings) -> Iterator[tuple[str, str]]:
    """Check the settings of notifications, like `checked`."""
    if notifications.public_url and not _PUBLIC_URL.fullmatch(notifications.public_url):
        yield "notifications.public_url", "write it like https://ade.example.org, without a query"
    if smtp.sender and not _SENDER.fullmatch(smtp.sender):
        yield "smtp.sender", "write one address, such as ade@example.org, without a name"
    if smtp.host and not smtp.sender:
        yield "smtp.sender", "an email needs a sender when smtp.host is set"
    if any(char.isspace() or char in "/@" for char in smtp.host):
        yield "smtp.host", "write one name or address, without scheme and port"
    if smtp.user and smtp.tls == "none" and not is_own_machine(smtp.host):
        yield "smtp.tls", "a password is sent only over TLS, or to a mail server on this machine"


def _checked_names(redis: RedisSettings) -> Iterator[tuple[str, str]]:
    """Check Redis names: braces would select a cluster slot, and each stream needs a distinct name."""
    streams = ("task_stream", "result_stream", "dlq_stream")
    for key in ("prefix", "group", *streams):
        name = getattr(redis, key)
        if name is not None and (not name or not name.isprintable() or set(name) & set("{} ")):
            yield f"redis.{key}", "it must not be empty, nor have braces, spaces or control characters in it"
    taken: set[str] = set()
    for key in streams:
        name = getattr(redis, key)
        if name in taken:
            yield f"redis.{key}", "the streams of tasks, of results and of dead letters must have different names"
        taken |= {name} - {None}


def is_own_machine(host: str) -> bool:
    """Return whether a server on this listen address is reachable only from this machine."""
    return is_loopback(host)


def _checked_networks(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        try:
            read_networks([text])
        except ValueError:
            yield "http.trusted_proxies", f"{text!r} is no address and no network, such as 10.0.0.7 or 10.0.0.0/8"


def _checked_reach(webhooks: WebhookSettings) -> Iterator[tuple[str, str]]:
    from ade.webhooks.destinations import networks_of  # 1 ms at every start, and few set these

    for name in ("allowed_networks", "refused_networks"):
        try:
            networks_of(getattr(webhooks, name))
        except AdeError as wrong:
            yield f"webhooks.{name}", wrong.detail


SYSTEM_FILE = Path("/etc/ade/ade.toml")
PROJECT_FILE = Path("ade.toml")
ENV_PREFIX = "ADE_"
DEFAULT = "default"


class SettingsError(AdeError):
    """A setting is wrong. The message names it and where it came from; correct it and start again."""

    code = "bad_settings"

    def __init__(self, detail: str = "", *, names: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.names = names


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, by section. Creating an instance checks the rules between fields and raises SettingsError."""

    store: StoreSettings = StoreSettings()
    redis: RedisSettings = RedisSettings()
    worker: WorkerSettings = WorkerSettings()
    task: TaskSettings = TaskSettings()
    sweep: SweepSettings = SweepSettings()
    limits: LimitSettings = LimitSettings()
    locks: LockSettings = LockSettings()
    agents: AgentSettings = AgentSettings()
    log: LogSettings = LogSettings()
    events: EventSettings = EventSettings()
    webhooks: WebhookSettings = WebhookSettings()
    notifications: NotificationSettings = NotificationSettings()
    smtp: SmtpSettings = SmtpSettings()
    figures: FigureSettings = FigureSettings()
    traces: TraceSettings = TraceSettings()
    http: HttpSettings = HttpSettings()
    client: ClientSettings = ClientSettings()

    def __post_init__(self) -> None:
        values = dict(self.items())
        wrong_settings = checked(self.redis, self.locks, self.http, self.webhooks)
        for name, wrong in (*wrong_settings, *checked_mail(self.notifications, self.smtp)):
            raise SettingsError(f"{name} = {values[name]!r} does not fit: {wrong}.", names=(name,))
        can = self.worker.capabilities
        capabilities_of(can, "worker.capabilities", partial(SettingsError, names=("worker.capabilities",)))
        for holds, first, relation, second, why in _rules(self):
            if not holds:
                sentence = f"{first} ({values[first]}) {relation} {second} ({values[second]}), {why}."
                raise SettingsError(sentence, names=(first, second))

    def items(self) -> Iterator[tuple[str, object]]:
        """Iterate over all settings as (dotted name, value)."""
        for name in KNOWN:
            section, key = name.split(".")
            yield name, getattr(getattr(self, section), key)

    @property
    def public_url(self) -> str:
        """The URL that links for people begin with: the public URL of the server, with its base path, or ""."""
        url = self.notifications.public_url.rstrip("/")
        return url if not url or url.endswith(self.http.base_path) else f"{url}{self.http.base_path}"


def _rules(settings: Settings) -> Iterator[tuple[bool, str, str, str, str]]:
    """Yield the rules between two settings: (holds, first, relation, second, why)."""
    store, worker, task = settings.store, settings.worker, settings.task
    yield (
        worker.heartbeat_s * 3 <= worker.lease_s,
        *("worker.lease_s", "must be at least three times", "worker.heartbeat_s"),
        "or one late heartbeat would cost a worker its tasks",
    )
    yield (
        settings.events.anchor_file is None or settings.events.anchor_key_file is not None,
        *("events.anchor_file", "needs", "events.anchor_key_file"),
        "because an anchor is a signed line",
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
    yield (
        settings.sweep.inbox_retention_s >= settings.sweep.retention_s,
        *("sweep.inbox_retention_s", "must be at least", "sweep.retention_s"),
        "or turns on record would be of a conversation that has forgotten them",
    )
    yield (
        settings.http.session_idle_s <= settings.http.session_lasts_s,
        *("http.session_idle_s", "must not exceed", "http.session_lasts_s"),
        "because a session ends with either",
    )
    yield (
        settings.http.auth == "required" or is_own_machine(settings.http.host),
        *("http.auth", "does not go with", "http.host"),
        "because others could reach it; listen on 127.0.0.1, or ask people who they are",
    )


_SECTIONS: Mapping[str, type[Any]] = {section.name: section.type for section in fields(Settings)}
KNOWN: Mapping[str, FieldInfo] = {
    f"{section}.{setting.name}": setting for section, kind in _SECTIONS.items() for setting in fields(kind)
}


class LoadedSettings(msgspec.Struct, frozen=True):
    """The effective settings, and the origin of each value by dotted name."""

    settings: Settings
    origins: Mapping[str, str]


class _SettingValue(msgspec.Struct, frozen=True):
    """One value as a layer provides it."""

    name: str
    value: object
    origin: str
    typed: bool = False  # in a file, "5" is a string and not a number; other layers provide only strings


def load(
    *,
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] = os.environ,
    files: Sequence[Path] | None = None,
) -> LoadedSettings:
    """Read and check all layers. Flags are dotted names; None means not given. Raises SettingsError."""
    paths = standard_files(env) if files is None else files
    given = [entry for path in paths for entry in _from_file(path)]
    given += _from_environment(env)
    given += [_SettingValue(name, value, "flag") for name, value in (flags or {}).items() if value is not None]

    origins = dict.fromkeys(KNOWN, DEFAULT)
    values: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for entry in given:
        converted = _convert(entry)
        section, key = entry.name.split(".")
        earlier = values[section].get(key)
        values[section][key] = {**earlier, **converted} if isinstance(converted, dict) and earlier else converted
        origins[entry.name] = entry.origin
    try:
        settings = Settings(**{section: kind(**values[section]) for section, kind in _SECTIONS.items()})
    except SettingsError as error:
        places = ", ".join(f"{name} from {origins[name]}" for name in error.names)
        raise SettingsError(f"{error.detail} ({places})", names=error.names) from None
    return LoadedSettings(settings, origins)


def standard_files(env: Mapping[str, str]) -> list[Path]:
    """Return the settings files to read if they exist, lowest precedence first."""
    home = env.get("HOME")
    is_open = home is not None and os.access(home, os.X_OK)  # a service might have an inaccessible home directory
    user_files = [Path(home, ".config", "ade", "ade.toml")] if home and is_open else []
    return [SYSTEM_FILE, *user_files, PROJECT_FILE]


def _from_file(path: Path) -> Iterator[_SettingValue]:
    try:
        text = path.read_text("utf-8")
        import tomllib  # takes milliseconds to import, and often there is no file

        document = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # invalid UTF-8, invalid TOML, or too deep nesting
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from None
    for section, table in document.items():
        if section not in _SECTIONS and not (isinstance(table, dict) and table):
            raise _unknown(section, str(path))
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: {section} must be a table: write [{section}] above its keys.")
        for key, value in table.items():
            yield _SettingValue(f"{section}.{key}", value, str(path), typed=True)


def _from_environment(env: Mapping[str, str]) -> Iterator[_SettingValue]:
    """Yield settings of the environment: names with a double underscore. ADE_APP and others are for the CLI."""
    for variable, text in sorted(env.items()):
        section, separator, key = variable.removeprefix(ENV_PREFIX).lower().partition("__")
        if variable.startswith(ENV_PREFIX) and separator:
            yield _SettingValue(f"{section}.{key}", text, variable)


def _convert(given: _SettingValue) -> object:
    if given.name not in KNOWN:
        raise _unknown(given.name, given.origin)
    wanted = KNOWN[given.name].type
    is_text = isinstance(given.value, str) and not given.typed
    value = _parse(str(given.value), wanted) if is_text else given.value
    try:
        return msgspec.convert(value, wanted, strict=not is_text)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the environment can contain invalid text
        about = " ".join(meta.description for meta in wanted.__metadata__ if meta.description)
        sentence = f"{given.origin}: {given.name} = {given.value!r} does not fit ({about}): {error}."
        raise SettingsError(sentence, names=(given.name,)) from None


def _parse(text: str, wanted: Any) -> object:
    """Parse a string value: lists are comma-separated, and an empty string unsets an optional setting."""
    bare = wanted.__origin__
    if get_origin(bare) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if not text and type(None) in get_args(bare):
        return None
    return text


def _unknown(name: str, origin: str) -> SettingsError:
    likely = {name.partition(".")[2]: name for name in KNOWN} | {name: name for name in (*_SECTIONS, *KNOWN)}
    nearest = close_names(name, likely, cutoff=0.5)
    hint = f" Did you mean {likely[nearest[0]]}?" if nearest else f" Sections are {', '.join(_SECTIONS)}."
    return SettingsError(f"{origin}: there is no setting {name}.{hint}", names=(name,))
