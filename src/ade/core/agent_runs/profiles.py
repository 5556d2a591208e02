"""Profiles: which program an agent type is, how it is called, and how its output is to be read. Data alone."""

import re
from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Protocol
from urllib.parse import quote

from msgspec import Struct

from ade.core.agent_runs.failures import RunFailure
from ade.core.agent_runs.marks import RATE_LIMIT_MARKS

Words = tuple[str, ...]
Choice = tuple[Words, ...]  # the first whose values are all known is used

NAME = re.compile(r"[a-z][a-z0-9-]{0,99}")
DEFAULT_TIMEOUT_MS = 3_600_000


class PromptBy(StrEnum):
    STDIN = auto()
    ARGUMENT = auto()


class ProtocolName(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    LETTA = auto()
    CLAUDE = auto()
    CODEX = auto()
    GEMINI = auto()
    JSON = auto()  # the whole output is one JSON object
    TEXT = auto()  # the whole output is the result


# What words of a profile may stand for, as `{model}`.
VALUES = frozenset(
    [
        "prompt",
        "type",
        "model",
        "system_prompt",
        "max_turns",
        "max_cost_usd",
        "session_id",
        "agent_id",
        "conversation_id",
        "tools",
        "permission_mode",
        "skills",
        "memory_blocks",
    ]
)

# What any program needs to find itself around. A star stands for the rest of a name.
COMMON_ENVIRONMENT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LC_*", "TMPDIR", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
TASK_ENVIRONMENT = ("LANG", "LC_*", "TZ")


class Who(Protocol):
    """Ids of a run, as far as they are known."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def conversation_id(self) -> str | None: ...


class Profile(Struct, frozen=True, kw_only=True):
    """One agent type. `command_line.command_of` makes a call of it."""

    name: str
    command: Words  # what every call begins with
    protocol: ProtocolName
    description: str = ""
    prompt_by: PromptBy = PromptBy.STDIN
    stdin_words: Words = ()  # tell the program that its prompt comes by stdin
    prompt_words: Words = ("{prompt}",)  # the prompt as an argument
    fresh: tuple[Choice, ...] = ()  # words for a run that resumes nothing
    options: tuple[Choice, ...] = ()  # words for every run, each left out while a value in it is not known
    permissions: Words = ()  # what the agent may do, as its program wants to be told
    hook_words: Words = ()  # have the program ask before it uses a tool, with {hook} for the command that asks
    is_guarded: bool = False  # and whether it is called with them
    # A hook can let it end in its session, to go on at the same tool call. Claude Code can, but goes on all the same
    # if it makes several calls at once; so it is ended instead, unless a profile says otherwise.
    can_defer: bool = False
    counts_sessions: bool = False  # what it says it has spent is that of the whole session, earlier runs included
    resume: Choice = ()  # words that take up an earlier session
    defaults: Mapping[str, str] = {}  # values for the words, where the run gives none
    environment: tuple[str, ...] = COMMON_ENVIRONMENT  # names that may pass to the program
    task_environment: tuple[str, ...] = TASK_ENVIRONMENT  # names that a task may set; never where secrets are sent
    set_environment: Mapping[str, str] = {}
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    memory_mb: int | None = None
    exit_codes: Mapping[int, RunFailure] = {}
    rate_limit_marks: tuple[str, ...] = RATE_LIMIT_MARKS  # any of these in an error, whatever its case
    model_marks: tuple[Words, ...] = ()  # all texts of one of these in an error: the model is not to be had
    cut_marks: tuple[str, ...] = ()  # any of these on stderr: output was lost on its way
    url: str | None = (
        None  # where people can look at an agent, with {agent_id}, {conversation_id} or {session_id} in it
    )
    fallback_model: str | None = None  # for one more run, if the model is not to be had


def url_of(profile: Profile, who: Who) -> str | None:
    """Where people can look at this agent; None as long as an id is not known that belongs into it."""
    url = profile.url
    for name in ("session_id", "agent_id", "conversation_id"):
        if url is not None and f"{{{name}}}" in url:
            value = getattr(who, name)
            url = None if value is None else url.replace(f"{{{name}}}", quote(value, safe=""))
    return url
