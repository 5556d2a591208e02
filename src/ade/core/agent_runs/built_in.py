"""The profiles that are always there. What they say was read from the sources of the programs."""

from collections.abc import Mapping

from ade.core.agent_runs.failures import RunFailure
from ade.core.agent_runs.profiles import COMMON_ENVIRONMENT, TASK_ENVIRONMENT, Profile, PromptBy, ProtocolName

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
    prompt_by=PromptBy.ARGUMENT,
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
