"""Profiles: which program an agent type is, how it is called, and how its output is to be read. Data alone."""

import re
from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Protocol
from urllib.parse import quote

from msgspec import Struct

from ade.agents.runs.failures import RATE_LIMIT_MARKS, RunFailure

Words = tuple[str, ...]
Choice = tuple[Words, ...]  # the first whose values are all known is used

NAME = re.compile(r"[a-z][a-z0-9-]{0,99}")
DEFAULT_TIMEOUT_MS = 3_600_000


class PromptChannel(StrEnum):
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


class RunIdentity(Protocol):
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
    prompt_by: PromptChannel = PromptChannel.STDIN
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


def url_of(profile: Profile, who: RunIdentity) -> str | None:
    """Where people can look at this agent; None as long as an id is not known that belongs into it."""
    url = profile.url
    for name in ("session_id", "agent_id", "conversation_id"):
        if url is not None and f"{{{name}}}" in url:
            value = getattr(who, name)
            url = None if value is None else url.replace(f"{{{name}}}", quote(value, safe=""))
    return url


# The profiles that are always there. What they say was read from the sources of the programs.


LETTA = Profile(
    name="letta",
    description="Letta Code, headless",
    command=("letta", "-p", "--output-format", "stream-json"),
    protocol=ProtocolName.LETTA,
    fresh=(
        (("--new-agent",),),
        (("--system-custom={system_prompt}",), ("--system", "{type}")),
        (("--tags", "type:{type}"),),
        (("--no-memfs",),),
        (("--model", "{model}"),),
        (("--tools", "{tools}"),),
        (("--init-blocks", "{memory_blocks}"),),
        (("--pre-load-skills", "{skills}"),),
    ),
    options=((("--permission-mode", "{permission_mode}"),), (("--max-turns", "{max_turns}"),)),
    resume=(("--conv", "{conversation_id}"), ("--agent", "{agent_id}", "--new")),
    defaults={"type": "general-purpose"},
    environment=(*COMMON_ENVIRONMENT, "LETTA_API_KEY", "LETTA_BASE_URL"),
    task_environment=(*TASK_ENVIRONMENT, "LETTA_PARENT_AGENT_ID"),
    set_environment={"LETTA_CODE_AGENT_ROLE": "subagent"},
    model_marks=(("Provider", "is not supported", "supported providers:"),),
    cut_marks=("headless stdout stream failed before the final result was written",),
)

CLAUDE = Profile(
    name="claude",
    description="Claude Code, headless",
    command=("claude", "-p", "--output-format", "stream-json", "--verbose"),
    protocol=ProtocolName.CLAUDE,
    options=(
        (("--model", "{model}"),),
        (("--append-system-prompt={system_prompt}",),),
        (("--allowedTools", "{tools}"),),
        (("--permission-mode", "{permission_mode}"),),
        (("--max-turns", "{max_turns}"),),
        (("--max-budget-usd", "{max_cost_usd}"),),
    ),
    hook_words=(
        "--settings",
        '{"hooks":{"PreToolUse":[{"matcher":"*","hooks":[{"type":"command","command":"{hook}","timeout":60}]}]}}',
    ),
    resume=(("--resume={session_id}",),),
    environment=(
        *COMMON_ENVIRONMENT,
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
        *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
    ),
    model_marks=(("not_found_error", "model:"), ("issue with the selected model",)),
)

CODEX = Profile(
    name="codex",
    description="Codex, headless",
    # A run's working directory is its own and seldom a git repository, which Codex refuses unless told.
    command=("codex", "exec", "--json", "--skip-git-repo-check"),
    protocol=ProtocolName.CODEX,
    stdin_words=("-",),
    options=((("--model", "{model}"),), (("--sandbox", "{permission_mode}"),)),
    resume=(("resume", "{session_id}"),),
    counts_sessions=True,
    environment=(*COMMON_ENVIRONMENT, "OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME"),
    model_marks=(("model", "is not supported"), ("model_not_found",)),
)

GEMINI = Profile(
    name="gemini",
    description="Gemini CLI, headless",
    command=("gemini", "-o", "stream-json"),
    protocol=ProtocolName.GEMINI,
    prompt_by=PromptChannel.ARGUMENT,
    prompt_words=("--prompt={prompt}",),  # one word, so that a prompt is never taken for a flag
    options=((("--model", "{model}"),), (("--approval-mode", "{permission_mode}"),)),
    resume=(("-r", "{session_id}"),),
    environment=(*COMMON_ENVIRONMENT, "GEMINI_API_KEY", "GOOGLE_*"),
    exit_codes={
        41: RunFailure.NOT_AUTHENTICATED,
        42: RunFailure.BAD_REQUEST,
        44: RunFailure.BAD_REQUEST,
        52: RunFailure.BAD_REQUEST,
        53: RunFailure.TURN_LIMIT,
        54: RunFailure.REPORTED,
        55: RunFailure.BAD_REQUEST,
        130: RunFailure.INTERRUPTED,
    },
    model_marks=(("models/", "is not found"),),
)

COMMAND = Profile(
    name="command",
    description='a program that reads a prompt and prints its result; say which with base = "command"',
    command=("cat",),
    protocol=ProtocolName.TEXT,
    rate_limit_marks=(),  # nobody knows what an unknown program means by such words
)

BUILT_IN: Mapping[str, Profile] = {profile.name: profile for profile in (LETTA, CLAUDE, CODEX, GEMINI, COMMAND)}
