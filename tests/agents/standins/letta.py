"""A stand-in for `letta -p --output-format stream-json`.

Directions: error, max-steps, rate-limit (retry_after), unsupported-provider, interrupted, error-flag, no-result, cut,
retry, tools, argv, and those of `acting`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.agents.standins.acting import Script, before, emit, emit_half, flood, hang, leave, prompt_of

AGENT, CONVERSATION = "agent-11111111-2222-4333-8444-555555555555", "conv-66666666-7777-4888-8999-000000000000"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="letta", allow_abbrev=False)
    parser.add_argument("-p", "--prompt", action="store_true")
    parser.add_argument("--output-format", choices=("text", "json", "stream-json"), default="text")
    for flag in ("--new-agent", "--no-memfs", "--new", "--yolo"):
        parser.add_argument(flag, action="store_true")
    for flag in ("--system", "--system-custom", "--tags", "--model", "--tools", "--init-blocks", "--pre-load-skills"):
        parser.add_argument(flag)
    for flag in ("--permission-mode", "--max-turns", "--conv", "--agent", "--allowedTools", "--disallowedTools"):
        parser.add_argument(flag)
    parser.add_argument("words", nargs="*")
    return parser.parse_args()


def envelope(number: int) -> dict[str, Any]:
    return {"session_id": AGENT, "uuid": f"uuid-{number}", "timestamp": "2026-03-18T10:00:00.000Z", "event_seq": number}


def error(message: str, stop_reason: str, script: Script) -> NoReturn:
    emit({"type": "error", "message": message, "stop_reason": stop_reason, "run_id": "run-1", **envelope(9)})
    leave(script, 1)


def main() -> None:
    given = arguments()
    script = Script(prompt_of(" ".join(given.words) or None))
    before(script)
    if script.has("unsupported-provider") and given.model == "nobody/nothing":
        print("Error: Provider nobody is not supported (supported providers: anthropic, openai)", file=sys.stderr)
        leave(script, 1)
    agent, conversation = given.agent or AGENT, given.conv or CONVERSATION
    emit(
        {
            "type": "system",
            "subtype": "init",
            "session_id": agent,
            "agent_id": agent,
            "conversation_id": conversation,
            "model": given.model or "anthropic/claude-sonnet-4-5",
            "tools": ["Bash", "Read"],
            "cwd": str(Path.cwd()),
            "mcp_servers": [],
            "permission_mode": given.permission_mode or "standard",
            "slash_commands": [],
            "uuid": f"init-{agent}",
        }
    )
    work(script)
    finish(script, agent, conversation)


def work(script: Script) -> None:
    if script.has("retry"):
        delay = script.number("retry", "delay_ms", 1000)
        notice = {"type": "retry", "reason": "llm_api_error", "attempt": 1, "max_attempts": 3, "delay_ms": delay}
        emit({**notice, **envelope(2)})
    if script.has("tools"):
        call = {"name": "Bash", "tool_call_id": "call_1", "arguments": '{"command":"ls"}'}
        emit({"type": "message", "message_type": "tool_call_message", "id": "m1", "tool_call": call, **envelope(3)})
        emit({"type": "auto_approval", "tool_call": call, "reason": "allowed", "matched_rule": "yolo", **envelope(4)})
        read = {"name": "Read", "tool_call_id": "call_2", "arguments": '{"path":"a.py"}'}
        emit({"type": "message", "message_type": "approval_request_message", "tool_calls": [read], **envelope(5)})
    message = {"type": "message", "message_type": "assistant_message", "id": "m2"}
    flood(script, {**message, **envelope(6)}, "content")
    hang(script)


def finish(script: Script, agent: str, conversation: str) -> NoReturn:
    if script.has("error"):
        error(script.text("error", "text", "the model answered with nonsense").replace("_", " "), "error", script)
    if script.has("max-steps"):
        error("Maximum turns limit reached", "max_steps", script)
    if script.has("rate-limit"):
        wait = script.number("rate-limit", "retry_after", 30)
        error(f"Rate limit exceeded (429). Retry after {wait} seconds", "llm_api_error", script)
    answer = json.dumps(sys.argv[1:]) if script.has("argv") else f"You said: {script.question}"
    emit({"type": "message", "message_type": "assistant_message", "id": "m3", "content": answer, **envelope(7)})
    usage = {"prompt_tokens": 1200, "completion_tokens": 34, "total_tokens": 1234, "step_count": 2}
    result: dict[str, Any] = {
        "type": "result",
        "subtype": "success",
        "session_id": agent,
        "duration_ms": 4321,
        "duration_api_ms": 4000,
        "num_turns": 2,
        "result": answer,
        "agent_id": agent,
        "conversation_id": conversation,
        "run_ids": ["run-1"],
        "usage": {**usage, "cached_input_tokens": 1000, "cache_write_tokens": 0, "reasoning_tokens": 0},
        "uuid": "result-run-1",
    }
    if script.has("interrupted"):
        result |= {"subtype": "interrupted", "result": "Interrupted by user"}
    if script.has("error-flag"):
        result |= {"is_error": True, "result": "it did not work out"}
    if script.has("cut"):
        emit_half(result)
    elif not script.has("no-result"):
        emit(result)
    leave(script, 0)


if __name__ == "__main__":
    main()
