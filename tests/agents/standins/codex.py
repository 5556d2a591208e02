"""A stand-in for `codex exec --json`.

Directions: turn-failed, error (a line and no end of the turn), rate-limit (text), recovered (an error that is got
over), no-result, cut, retry, tools, argv, and those of `acting`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.agents.standins.acting import Script, before, emit, emit_half, flood, hang, leave, prompt_of

THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="codex", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", required=True)
    parser.add_argument("--skip-git-repo-check", action="store_true")
    for flag in ("--model", "--sandbox", "-o"):
        parser.add_argument(flag)
    parser.add_argument("words", nargs="*")
    given = parser.parse_intermixed_args()
    if given.words.pop(0) != "exec":
        parser.error("only `codex exec` is played here")
    if not given.skip_git_repo_check and not Path(".git").exists():
        print("Not inside a trusted directory and --skip-git-repo-check was not specified.", file=sys.stderr)
        raise SystemExit(1)
    return given


def main() -> None:
    given = arguments()
    thread, words = THREAD, given.words
    if words[:1] == ["resume"]:
        thread, words = words[1], words[2:]
    script = Script(prompt_of(None if words in ([], ["-"]) else words[0]))
    before(script)
    emit({"type": "thread.started", "thread_id": thread})
    emit({"type": "turn.started"})
    work(script)
    finish(script)


def work(script: Script) -> None:
    if script.has("retry"):
        emit({"type": "error", "message": "Reconnecting... 1/5 (stream disconnected before completion)"})
    if script.has("recovered"):
        emit({"type": "error", "message": "stream error: 429 Too Many Requests"})
    emit({"type": "item.completed", "item": {"id": "item_0", "type": "reasoning", "text": "**Thinking**"}})
    if script.has("tools"):
        command = {"id": "item_1", "type": "command_execution", "command": "bash -lc ls"}
        emit({"type": "item.started", "item": {**command, "aggregated_output": "", "status": "in_progress"}})
        done = {"aggregated_output": "a.py\n", "exit_code": 0, "status": "completed"}
        emit({"type": "item.completed", "item": {**command, **done}})
        tool = {"id": "item_2", "type": "mcp_tool_call", "server": "docs", "tool": "search", "arguments": {"q": "é"}}
        emit({"type": "item.completed", "item": {**tool, "result": None, "error": None, "status": "completed"}})
    flood(script, {"type": "item.updated"}, "padding")
    hang(script)


def finish(script: Script) -> NoReturn:
    if script.has("error"):
        emit({"type": "error", "message": script.text("error", "text", "unexpected status 500").replace("_", " ")})
        leave(script, 1)
    if script.has("rate-limit"):
        default = "You've_hit_your_usage_limit._Try_again_in_3_hours_5_minutes."
        fail(script.text("rate-limit", "text", default).replace("_", " "), script)
    if script.has("turn-failed"):
        fail(script.text("turn-failed", "text", "the turn could not be ended").replace("_", " "), script)
    answer = json.dumps(sys.argv[1:]) if script.has("argv") else f"You said: {script.question}"
    emit({"type": "item.completed", "item": {"id": "item_8", "type": "agent_message", "text": "First thoughts."}})
    emit({"type": "item.completed", "item": {"id": "item_9", "type": "agent_message", "text": answer}})
    usage = {"input_tokens": 24763, "cached_input_tokens": 24448, "output_tokens": 122, "reasoning_output_tokens": 64}
    completed = {"type": "turn.completed", "usage": usage}
    if script.has("cut"):
        emit_half(completed)
    elif not script.has("no-result"):
        emit(completed)
    leave(script, 0)


def fail(message: str, script: Script) -> NoReturn:
    emit({"type": "error", "message": message})
    emit({"type": "turn.failed", "error": {"message": message}})
    leave(script, 1)


if __name__ == "__main__":
    main()
