"""The sections of the settings: type, bounds, default, and description of each setting."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ade.failures import Backoff

# The upper bounds reject `inf`, and durations given in milliseconds by mistake.
_TEN_YEARS_S = 315_360_000
_Seconds = Annotated[float, Meta(gt=0, le=_TEN_YEARS_S)]
_SecondsOrNone = Annotated[float, Meta(ge=0, le=_TEN_YEARS_S)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
_CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000_000)]
_Dollars = Annotated[float, Meta(gt=0, le=1_000_000_000)]


def _about(text: str) -> Meta:
    """Describe a setting; shown when a value is invalid."""
    return Meta(description=text)


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where records live and how carefully they are written."""

    url: Annotated[str, _about("where records are kept")] = "sqlite:///.ade/ade.db"
    synchronous: Annotated[
        Literal["full", "normal"],
        _about("full: accepted work survives a power cut; normal: it survives a crash of ADE"),
    ] = "full"
    allow_network_fs: Annotated[bool, _about("accept a database on a network file system")] = False
    ballast_mb: Annotated[_CountOrNone, _about("disk space kept back for a full disk")] = 16
    min_free_percent: Annotated[float, Meta(ge=0, le=90), _about("free disk space that new work needs")] = 5.0
    wal_alarm_mb: Annotated[_Count, _about("size of the write-ahead log at which an alarm is raised")] = 64
    blob_dir: Annotated[str | None, _about("folder for large payloads; unset: <database>.blobs")] = None
    inline_limit_kb: Annotated[_CountOrNone, _about("payloads above this size go to the blob folder")] = 128
    payload_limit_mb: Annotated[_Count, _about("payloads above this size are refused")] = 64
    upgrade: Annotated[
        bool,
        _about("up, worker, and serve copy and upgrade a store of an older version; off: only `ade upgrade` does"),
    ] = False


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store on Redis or Valkey uses its servers."""

    prefix: Annotated[str, _about("what every key begins with")] = "ade:"
    partitions: Annotated[
        int, Meta(ge=1, le=4096), _about("parts a cluster's work is spread over; settled when a store is first used")
    ] = 16
    task_stream: Annotated[
        str | None,
        _about("what the streams of ready tasks begin with, before :<queue>:<priority>; unset: <prefix>queue:tasks"),
    ] = None
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
        _about("strong: replicas must confirm accepted tasks, or the caller gets `not_confirmed`"),
    ] = "normal"
    replicas: Annotated[_Count, _about("replicas that must confirm when durability is strong")] = 1
    confirm_timeout_s: Annotated[_Seconds, _about("how long to wait for them")] = 1.0
    allow_volatile: Annotated[bool, _about("accept a server that keeps no append-only file")] = False
    stale_rules_s: Annotated[
        float,
        Meta(ge=0, le=86_400),
        _about(
            "on a cluster, how long rules and definitions are used while the partition that has them does not respond;"
            " work that needs approval waits"
        ),
    ] = 300.0


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
    capabilities: Annotated[
        tuple[str, ...], _about("capabilities of the worker, in addition to those of its agent; tasks can require them")
    ] = ()
    agent: Annotated[str | None, _about("agent that the worker works for, within its capacity; unset: none")] = None
    max_tasks: Annotated[
        _Count | None,
        _about("tasks the agent may have at once, in all its workers; unset: as it is known, or worker.concurrency"),
    ] = None
    code_version: Annotated[
        Literal["source", "declared", "off"],
        _about(
            "version of a task's code that approvals cover. source: as declared by version=, or a hash of its"
            " source; declared: only as declared; off: none"
        ),
    ] = "source"
    lease_guard: Annotated[
        bool, _about("renew leases and return tasks from a second process while the worker is blocked")
    ] = True


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a task that does not say otherwise."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000), _about("runs in total before a task fails for good")] = 3
    timeout_s: Annotated[_SecondsOrNone, _about("longest first run; 0: no limit")] = 0.0
    backoff_base_s: Annotated[_Seconds, _about("delay after the first failed attempt")] = 1.0
    backoff_multiplier: Annotated[float, Meta(ge=1, le=100), _about("growth of the delay per attempt")] = 2.0
    backoff_cap_s: Annotated[_Seconds, _about("longest delay between attempts")] = 300.0
    backoff_jitter: Annotated[float, Meta(ge=0, le=1), _about("share by which a delay varies")] = 0.1
    backoff_steps_s: Annotated[
        tuple[_SecondsOrNone, ...],
        _about("delays after each failed attempt, such as [60, 300, 900]; empty: computed from the base"),
    ] = ()
    result_ttl_s: Annotated[_Seconds, _about("how long results are kept")] = 604_800.0
    author: Annotated[str, _about("author of tasks that name none; ADE_USER takes precedence")] = ""

    @property
    def timeout_ms(self) -> int | None:
        return round(self.timeout_s * 1000) or None

    @property
    def backoff(self) -> Backoff:
        return Backoff(
            base_ms=round(self.backoff_base_s * 1000),
            multiplier=self.backoff_multiplier,
            cap_ms=round(self.backoff_cap_s * 1000),
            jitter=self.backoff_jitter,
            steps_ms=tuple(round(step * 1000) for step in self.backoff_steps_s),
        )

    @property
    def result_ttl_ms(self) -> int:
        return round(self.result_ttl_s * 1000)


class SweepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Duties done on a timer."""

    interval_s: Annotated[_Seconds, _about("time between two sweeps")] = 1.0
    retention_s: Annotated[_Seconds, _about("how long finished tasks are kept")] = 604_800.0
    governed_retention_s: Annotated[
        _Seconds, _about("how long finished tasks that needed approval are stored, with their approvals and votes")
    ] = 7_776_000.0
    dead_letter_retention_s: Annotated[_Seconds, _about("how long dead letters are stored")] = 7_776_000.0
    effect_retention_s: Annotated[
        _Seconds, _about("how long ctx.once remembers a finished effect, at least; longer while its task exists")
    ] = 2_592_000.0
    inbox_retention_s: Annotated[
        _Seconds, _about("how long an empty inbox is kept, with what its consumer remembers of the conversation")
    ] = 7_776_000.0
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
            " .ade/audit.db if the store is not a file"
        ),
    ] = None
    audit_max_mb: Annotated[
        _CountOrNone,
        _about("size of the audit copy in a file, above which its oldest entries are rotated out; 0: no limit"),
    ] = 0
    audit_archive_dir: Annotated[
        str | None, _about("folder for entries that are rotated out of the audit copy; unset: they are removed")
    ] = None
    anchor_every_s: Annotated[
        _SecondsOrNone, _about("how often the head of the audit copy is anchored by audit.anchored; 0: never")
    ] = 0.0
    anchor_file: Annotated[
        str | None, _about("file to which anchors are appended as signed lines, best on another machine; unset: none")
    ] = None
    anchor_key_file: Annotated[str | None, _about("file with the key that signs anchors; unset: none")] = None


class FigureSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over time, for charts and metrics."""

    enabled: Annotated[bool, _about("count what happens to tasks; off: charts and counters of metrics stand still")] = (
        True
    )
    minutes_kept_s: Annotated[
        float, Meta(ge=7_200, le=_TEN_YEARS_S), _about("how long figures are kept minute by minute")
    ] = 86_400.0
    hours_kept_s: Annotated[_Seconds, _about("how long they are kept hour by hour")] = 7_776_000.0
    groups: Annotated[
        int, Meta(ge=1, le=500), _about("pairs of queue and task name counted apart; the rest is counted as other")
    ] = 50

    @property
    def minutes_kept_ms(self) -> int:
        return round(self.minutes_kept_s * 1000)

    @property
    def hours_kept_ms(self) -> int:
        return round(self.hours_kept_s * 1000)


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Spans for OpenTelemetry."""

    enabled: Annotated[
        bool, _about("make spans of HTTP requests, enqueuing, and running; needs ADE with its extra [otel]")
    ] = False


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where webhooks may go. Without these, to https and to public addresses alone."""

    allow_http: Annotated[bool, _about("let webhooks have addresses without TLS")] = False
    allowed_ports: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=1023)], ...],
        _about("ports below 1024 they may use, in addition to 443 and 80"),
    ] = ()
    allowed_networks: Annotated[
        tuple[str, ...], _about("networks they may reach although they are not public, such as 10.1.0.0/16")
    ] = ()
    refused_networks: Annotated[
        tuple[str, ...], _about("networks they may not reach although they are public, such as your own")
    ] = ()


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What notifications of people contain. Channels are added with `ade notify channels add`."""

    public_url: Annotated[
        str,
        Meta(max_length=500),
        _about("URL of the server as people reach it, for links to reviews; empty: the command to run"),
    ] = ""
    include_arguments: Annotated[bool, _about("include the arguments of tasks, with values of secret names masked")] = (
        False
    )


class SmtpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The mail server for notifications by email. The password is in a file, so that settings can be shown."""

    host: Annotated[str, Meta(max_length=255), _about("name of the mail server; empty: no email is sent")] = ""
    port: Annotated[int, Meta(ge=1, le=65_535), _about("port of the mail server")] = 587
    tls: Annotated[
        Literal["starttls", "ssl", "none"],
        _about("starttls (port 587), ssl (port 465), or none, for a mail server on the same machine"),
    ] = "starttls"
    user: Annotated[str, Meta(max_length=255), _about("user name for the mail server; empty: no authentication")] = ""
    password_file: Annotated[str, _about("file that contains the password")] = ""
    sender: Annotated[str, Meta(max_length=254), _about("email address from which notifications are sent")] = ""
    ca_file: Annotated[str, _about("certificates to trust instead of those of the system")] = ""
    timeout_s: Annotated[float, Meta(ge=1, le=60), _about("longest wait for a response of the mail server")] = 15.0


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Agents that workers run: which types, where their files lie, and what may be spent."""

    types: Annotated[
        tuple[str, ...],
        _about("agent types a worker runs; empty: those of agents.profiles and agents.folders; *: all that are found"),
    ] = ()
    profiles: Annotated[dict[str, dict[str, Any]], _about("agent types, a table for each")] = {}
    folders: Annotated[
        tuple[str, ...], _about("folders with a Markdown file for each agent type; those that are not there do no harm")
    ] = (".ade/agents",)
    transcripts: Annotated[str, _about("folder for the transcripts of runs")] = ".ade/transcripts"
    workspaces: Annotated[str, _about("folder for working directories of tasks that name none")] = ".ade/workspaces"
    max_tokens: Annotated[_Count | None, _about("tokens one task may use, all its attempts together")] = None
    max_cost_usd: Annotated[_Dollars | None, _about("dollars one task may cost, all its attempts together")] = None
    max_turns: Annotated[_Count | None, _about("turns one task may take, all its attempts together")] = None
    author_tokens: Annotated[_Count | None, _about("tokens that the runs of one author may use in the window")] = None
    author_cost_usd: Annotated[_Dollars | None, _about("dollars that they may cost in the window")] = None
    author_turns: Annotated[_Count | None, _about("turns that they may take in the window")] = None
    author_window_s: Annotated[_Seconds, _about("how long what an author has spent counts")] = 86_400.0
    pumps: Annotated[
        _CountOrNone,
        _about("conversations that one worker process feeds at once, not counting turns that only wait; 0: none"),
    ] = 100


_Rate = Annotated[str, Meta(max_length=40)]
_SessionSeconds = Annotated[float, Meta(ge=60, le=31_536_000)]


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP interface: the address, authentication, and rate limits.

    Rates are counts and periods, such as 600/m or 10/30s, or none. Each applies to one account, or to one IP address if
    the caller is not authenticated.
    """

    host: Annotated[str, Meta(min_length=1, max_length=255), _about("address to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535), _about("port to listen on; 0: any that is free")] = 8411
    base_path: Annotated[
        str,
        Meta(max_length=200),
        _about("prefix of all paths, such as /ade, for a reverse proxy that passes it on; empty: none"),
    ] = ""
    auth: Annotated[
        Literal["required", "off"],
        _about("off: every caller is the account `local`, an admin without a vote; only on a loopback address"),
    ] = "required"
    allowed_hosts: Annotated[
        tuple[str, ...],
        _about("host names of requests, in addition to localhost and http.host; *.example.org: all below"),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], _about("addresses and networks of proxies whose forwarding headers count")
    ] = ()
    body_limit_kb: Annotated[_Count, _about("requests with a larger body are refused")] = 8192
    read_rate: Annotated[_Rate, _about("how often one may read")] = "6000/m"
    write_rate: Annotated[_Rate, _about("how often one may change something")] = "3000/m"
    vote_rate: Annotated[_Rate, _about("how often one may answer approvals")] = "60/m"
    login_rate: Annotated[_Rate, _about("how often one may try to sign in")] = "10/m"
    work_rate: Annotated[_Rate, _about("how often a worker may claim, renew and finish")] = "60000/m"
    lock_rate: Annotated[_Rate, _about("how often an agent may ask for locks")] = "1200/m"
    stream_rate: Annotated[_Rate, _about("how often one may open a stream of events")] = "60/m"
    all_times: Annotated[
        _CountOrNone, _about("how many times the rate of one all together may use; 0: no limit for all together")
    ] = 100
    session_idle_s: Annotated[_SessionSeconds, _about("login sessions end when unused for so long")] = 3_600.0
    session_lasts_s: Annotated[_SessionSeconds, _about("and so long after they began, however much used")] = 86_400.0
    fresh_session_s: Annotated[
        float,
        Meta(ge=60, le=3_600),
        _about("changing roles, passwords, login links, and tokens requires a password check within this time"),
    ] = 600.0
    # A client that receives nothing for a minute reconnects.
    heartbeat_s: Annotated[float, Meta(ge=1, le=45), _about("time between two signs of life in a stream")] = 15.0
    max_subscribers: Annotated[_Count, _about("streams of events and output that may be open at once")] = 5000
    max_subscribers_each: Annotated[_Count, _about("of these, how many one account may have open")] = 200
    grace_s: Annotated[_SecondsOrNone, _about("how long a stopping server waits for what is being answered")] = 20.0
    key_retention_s: Annotated[
        float,
        Meta(ge=600, le=2_592_000),
        _about("how long answers to requests with an Idempotency-Key are kept"),
    ] = 86_400.0
    access_log: Annotated[
        Literal["off", "errors", "all"],
        _about("a line in the log for each request that was refused or failed, or for all of them"),
    ] = "off"
    masked_fields: Annotated[
        tuple[str, ...],
        _about("fields of payloads that only accounts with read_payloads see, such as *password*; in any case"),
    ] = ()
    masked_patterns: Annotated[
        tuple[str, ...],
        _about("regular expressions; what matches in a payload is seen only by accounts with read_payloads"),
    ] = ()

    def rates(self) -> dict[str, str]:
        """Return the rate limits as configured, by class of traffic."""
        return {
            "read": self.read_rate,
            "write": self.write_rate,
            "vote": self.vote_rate,
            "login": self.login_rate,
            "work": self.work_rate,
            "lock": self.lock_rate,
            "stream": self.stream_rate,
        }


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server that commands use; without one, they use the store of this machine.

    Tokens are in separate files, or in ADE_TOKEN, so that settings can be shown.
    """

    url: Annotated[str, _about("address of a server, such as https://ade.example.org; empty: none")] = ""
    token_file: Annotated[str, _about("a file whose first line is the token for it")] = ""
    allow_plain: Annotated[bool, _about("let the token go over plain HTTP, where the network is trusted")] = False
    profile: Annotated[str, _about("which of client.profiles to use; empty: none")] = ""
    profiles: Annotated[
        dict[str, dict[str, Any]], _about("servers by name, a table with url, token_file and allow_plain for each")
    ] = {}
