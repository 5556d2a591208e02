"""Profiles: which program an agent type runs, how to call it, and how to parse its output. Data only."""

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
    """How a program receives its prompt."""

    STDIN = auto()
    ARGUMENT = auto()


class ProtocolName(StrEnum):
    """The output format of a program."""

    __hash__ = str.__hash__  # the Enum's own __hash__ is a Python function, which is slower

    LETTA = auto()
    CLAUDE = auto()
    CODEX = auto()
    GEMINI = auto()
    JSON = auto()  # the whole output is one JSON object
    TEXT = auto()  # the whole output is the result


# Placeholders in the words of a profile, such as `{model}`.
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

# Environment variables that every program needs. A star matches the rest of a name.
COMMON_ENVIRONMENT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LC_*", "TMPDIR", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
TASK_ENVIRONMENT = ("LANG", "LC_*", "TZ")


class RunIdentity(Protocol):
    """The IDs of a run, as far as they are known."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def conversation_id(self) -> str | None: ...


class Profile(Struct, frozen=True, kw_only=True):
    """One agent type. `command_line.command_of` builds its command line."""

    name: str
    command: Words  # the start of every command line
    protocol: ProtocolName
    description: str = ""
    prompt_by: PromptChannel = PromptChannel.STDIN
    stdin_words: Words = ()  # make the program read its prompt from stdin
    prompt_words: Words = ("{prompt}",)  # pass the prompt as an argument
    fresh: tuple[Choice, ...] = ()  # words for a run that resumes nothing
    options: tuple[Choice, ...] = ()  # words for every run; each is omitted while a value in it is unknown
    permissions: Words = ()  # the program's flags for what the agent is allowed to do
    hook_words: Words = ()  # make the program call a hook before it uses a tool; {hook} is the command
    is_guarded: bool = False  # whether the program is called with the hook words
    # With `defer`, a hook can end the program in its session, to resume at the same tool call. Claude Code supports it,
    # but continues regardless if it makes several calls in parallel. So by default the program is stopped instead.
    can_defer: bool = False
    counts_sessions: bool = False  # its usage reports cover the whole session, earlier runs included
    resume: Choice = ()  # words that resume an earlier session
    defaults: Mapping[str, str] = {}  # placeholder values where the run gives none
    environment: tuple[str, ...] = COMMON_ENVIRONMENT  # variables that are passed to the program
    task_environment: tuple[str, ...] = TASK_ENVIRONMENT  # variables that a task can set; none redirects secrets
    set_environment: Mapping[str, str] = {}
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    memory_mb: int | None = None
    exit_codes: Mapping[int, RunFailure] = {}
    rate_limit_marks: tuple[str, ...] = RATE_LIMIT_MARKS  # case-insensitive; any of these in an error
    model_marks: tuple[Words, ...] = ()  # all texts of one entry in an error: the model is unavailable
    cut_marks: tuple[str, ...] = ()  # any of these on stderr: output was lost
    url: str | None = None  # web page of an agent, with {agent_id}, {conversation_id}, or {session_id}
    fallback_model: str | None = None  # for one more run, if the model is unavailable


def url_of(profile: Profile, who: RunIdentity) -> str | None:
    """Return the web page of this agent; None while an ID in the URL is unknown."""
    url = profile.url
    for name in ("session_id", "agent_id", "conversation_id"):
        if url is not None and f"{{{name}}}" in url:
            value = getattr(who, name)
            url = None if value is None else url.replace(f"{{{name}}}", quote(value, safe=""))
    return url


# Built-in profiles. The flags and formats were taken from the programs' sources.


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
    # A run has its own working directory, which is seldom a git repository. Codex rejects that without this flag.
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
    prompt_words=("--prompt={prompt}",),  # one word, so that a prompt is never parsed as a flag
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
    rate_limit_marks=(),  # an unknown program might use these words differently
)

BUILT_IN: Mapping[str, Profile] = {profile.name: profile for profile in (LETTA, CLAUDE, CODEX, GEMINI, COMMAND)}
