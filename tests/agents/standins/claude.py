"""A stand-in for `claude -p --output-format stream-json --verbose`.

Directions: error-flag (an error of the API that exits 0 with subtype success), rate-limit (status, resets_at),
max-turns, execution-error, no-result, cut, retry, tools, defer, use-tool (command), argv, and those of `acting`.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.agents.standins.acting import Script, before, emit, emit_half, flood, hang, leave, prompt_of

SESSION = "5c2b8f7e-1111-4222-8333-444455556666"
USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 200,
    "cache_read_input_tokens": 3000,
    "output_tokens": 40,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="claude", allow_abbrev=False)
    parser.add_argument("-p", "--print", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    for flag in (
        "--output-format",
        "--input-format",
        "--model",
        "--append-system-prompt",
        "--allowedTools",
        "--resume",
    ):
        parser.add_argument(flag)
    for flag in ("--permission-mode", "--max-turns", "--max-budget-usd", "--permission-prompt-tool", "--mcp-config"):
        parser.add_argument(flag)
    parser.add_argument("--settings")
    parser.add_argument("prompt", nargs="?")
    given = parser.parse_args()
    if given.output_format == "stream-json" and not given.verbose:
        print("Error: When using --print, --output-format=stream-json requires --verbose", file=sys.stderr)
        raise SystemExit(1)
    return given


def assistant(session: str, message_id: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": message_id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    return {
        "type": "assistant",
        "message": {**message, "content": list(blocks), "stop_reason": None, "usage": USAGE},
        "parent_tool_use_id": None,
        "session_id": session,
        "uuid": f"uuid-{message_id}",
        **more,
    }


def model_usage(messages: int) -> dict[str, float]:
    """All messages of a model, those of agents that the agent has started as well."""
    names = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
    return {**{name: messages * count for name, count in zip(names, USAGE.values(), strict=True)}, "costUSD": 0.0125}


def main() -> None:
    given = arguments()
    script = Script(prompt_of(given.prompt))
    before(script)
    session = given.resume or SESSION
    emit(
        {
            "type": "system",
            "subtype": "init",
            "cwd": str(Path.cwd()),
            "session_id": session,
            "tools": ["Bash", "Read"],
            "mcp_servers": [],
            "model": given.model or "claude-sonnet-4-5",
            "permissionMode": given.permission_mode or "default",
            "slash_commands": [],
            "apiKeySource": "ANTHROPIC_API_KEY",
            "uuid": "uuid-init",
        }
    )
    work(script, session)
    finish(script, session, used_tool(script, session, given))


def work(script: Script, session: str) -> None:
    if script.has("retry"):
        notice = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "retry_delay_ms": 600.4}
        emit({**notice, "error_status": 529, "error": "overloaded", "session_id": session, "uuid": "uuid-retry"})
    if script.has("tools"):
        text = {"type": "text", "text": "Let me look."}
        call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
        emit(assistant(session, "msg_1", text))
        emit(assistant(session, "msg_1", call))  # one record for each block, each with the usage of the message
        answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rate limit exceeded: 429"}
        emit({"type": "user", "message": {"role": "user", "content": [answer]}, "session_id": session})
        nested = {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {"file_path": "a.py"}}
        emit(assistant(session, "msg_2", nested, parent_tool_use_id="toolu_1"))
    flood(script, {"type": "user", "session_id": session}, "padding")
    hang(script)


def used_tool(script: Script, session: str, given: argparse.Namespace) -> dict[str, Any]:
    """Use a tool if the hooks allow it, also one that was deferred earlier; what the result says of it."""
    deferred = Path("deferred.json")
    call: dict[str, Any]
    if script.has("use-tool"):
        command = script.text("use-tool", "command", "ls").replace("_", " ")
        call = {"id": "toolu_7", "name": "Bash", "input": {"command": command}}
    elif given.resume and deferred.exists() and script.question in ("", *re.findall(".*call again.*", script.question)):
        call = json.loads(deferred.read_text())
    else:
        return {}
    deferred.write_text(json.dumps(call))  # it stands in the session, whatever comes of it
    decision, reason = hooks_say(given, call, session)
    if decision == "deny" and (other := reason.partition("Use these arguments instead: ")[2]):
        call = {"id": "toolu_8", "name": "Bash", "input": json.loads(other)}  # it does as it is told
        decision, reason = hooks_say(given, call, session)
    if decision == "defer":
        return {"deferred_tool_use": call}
    if decision == "allow":
        deferred.unlink()
    emit(assistant(session, "msg_7", {"type": "tool_use", **call}))
    return {"result": f"ran {call['input']['command']}" if decision == "allow" else f"{decision}: {reason}"}


def hooks_say(given: argparse.Namespace, call: dict[str, Any], session: str) -> tuple[str, str]:
    """What the PreToolUse hook of the settings decides; without one everything is allowed."""
    if given.settings is None:
        return "allow", ""
    [entry] = json.loads(given.settings)["hooks"]["PreToolUse"]
    told = {"session_id": session, "cwd": str(Path.cwd()), "hook_event_name": "PreToolUse"}
    told |= {"tool_name": call["name"], "tool_input": call["input"], "tool_use_id": call["id"]}
    command = entry["hooks"][0]["command"]
    ended = subprocess.run(command, shell=True, input=json.dumps(told), capture_output=True, text=True, check=False)
    if ended.returncode == 2:
        return "deny", ended.stderr.strip()
    if ended.returncode or not ended.stdout.strip():
        return "allow", ""  # as the real one: another error does not hold the call up
    output = json.loads(ended.stdout)["hookSpecificOutput"]
    return output["permissionDecision"], output["permissionDecisionReason"]


def finish(script: Script, session: str, used: dict[str, Any]) -> NoReturn:
    answer = json.dumps(sys.argv[1:]) if script.has("argv") else f"You said: {script.question}"
    result: dict[str, Any] = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "api_error_status": None,
        "duration_ms": 2118,
        "duration_api_ms": 3091,
        "num_turns": 3,
        "result": answer,
        "stop_reason": "end_turn",
        "session_id": session,
        "total_cost_usd": 0.0125,
        "usage": {key: 2 * count for key, count in USAGE.items()},
        "modelUsage": {"claude-sonnet-4-5": model_usage(3 if script.has("tools") else 2)},
        "permission_denials": [],
        "uuid": "uuid-result",
        **used,
    }
    code = failures(script, session, result)
    if code is None:
        emit(assistant(session, "msg_9", {"type": "text", "text": answer}))
    if script.has("cut"):
        emit_half(result)
    elif not script.has("no-result"):
        emit(result)
    leave(script, code or 0)


def failures(script: Script, session: str, result: dict[str, Any]) -> int | None:
    """Make the result a bad one if the directions say so; the exit code of that."""
    if script.has("rate-limit"):
        return rate_limit(script, session, result)
    if script.has("error-flag"):
        result |= {"is_error": True, "api_error_status": 500, "result": "API Error: 500 Internal server error"}
        return 0
    if script.has("max-turns"):
        result |= {"subtype": "error_max_turns", "is_error": False}
        del result["result"]
        return 1
    if script.has("execution-error"):
        errors = ["Error: the tool could not be started", "Error: giving up"]
        result |= {"subtype": "error_during_execution", "is_error": True, "errors": errors}
        del result["result"]
        return 1
    if script.has("defer"):
        result["deferred_tool_use"] = {"id": "toolu_9", "name": "Bash", "input": {"command": "rm -rf build"}}
    return None


def rate_limit(script: Script, session: str, result: dict[str, Any]) -> int:
    status, resets_at = script.number("rate-limit", "status", 429), script.number("rate-limit", "resets_at", 0)
    if resets_at:
        info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
        emit({"type": "rate_limit_event", "rate_limit_info": info, "uuid": "uuid-limit", "session_id": session})
    message = f"API Error: {status} " + ("rate_limit_error" if status == 429 else "overloaded_error")
    error = "rate_limit" if status == 429 else "overloaded"
    emit(assistant(session, "msg_8", {"type": "text", "text": message}, error=error))
    result |= {"is_error": True, "api_error_status": status, "terminal_reason": "api_error", "result": message}
    return 1


if __name__ == "__main__":
    main()
