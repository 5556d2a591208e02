"""A stand-in for `gemini -p ... -o stream-json`.

Directions: error (type, code), rate-limit (retry_after), turn-limit, error-line (a line and no result), error-flag
(exits 0), warning, no-result, cut, tools, argv, and those of `acting`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.agents.standins.acting import Script, before, emit, emit_half, flood, hang, leave, prompt_of

SESSION = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
AT = "2026-03-18T10:00:00.000Z"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gemini", allow_abbrev=False)
    parser.add_argument("-p", "--prompt")
    parser.add_argument("-o", "--output-format", choices=("text", "json", "stream-json"), required=True)
    parser.add_argument("-r", "--resume")
    for flag in ("--model", "--approval-mode"):
        parser.add_argument(flag)
    return parser.parse_args()


def say(kind: str, **more: Any) -> None:
    emit({"type": kind, "timestamp": AT, **more})


def main() -> None:
    given = arguments()
    prompt = prompt_of(given.prompt)
    script = Script(prompt)
    before(script)
    say("init", session_id=given.resume or SESSION, model=given.model or "gemini-3-pro")
    say("message", role="user", content=prompt)
    if script.has("warning"):
        say("error", severity="warning", message="Loop detected, stopping execution")
    if script.has("tools"):
        say("message", role="assistant", content="Let me look. ", delta=True)
        say("tool_use", tool_name="read_file", tool_id="read_file-1", parameters={"path": "a.py"})
        say("tool_result", tool_id="read_file-1", status="success", output="429 too many requests")
    flood(script, {"type": "tool_result", "timestamp": AT, "tool_id": "t", "status": "success"}, "output")
    hang(script)
    finish(script)


def finish(script: Script) -> NoReturn:
    if script.has("error-line"):
        say("error", severity="error", message="the model could not be reached")
        leave(script, 1)
    if script.has("rate-limit"):
        wait = script.number("rate-limit", "retry_after", 34)
        message = (
            f'You exceeded your current quota. {{"code":429,"status":"RESOURCE_EXHAUSTED","retryDelay":"{wait}s"}}'
        )
        fail(script, "Error", message, 1)
    if script.has("turn-limit"):
        fail(script, "FatalTurnLimitedError", "Reached max session turns for this session.", 53)
    if script.has("error"):
        kind = script.text("error", "type", "FatalAuthenticationError")
        fail(script, kind, "it does not work like this", script.number("error", "code", 41))
    if script.has("error-flag"):
        fail(script, "ApiError", "the model was not in the mood", 0)
    answer = json.dumps(sys.argv[1:]) if script.has("argv") else f"You said: {script.question}"
    for piece in (answer[:5], answer[5:]):
        say("message", role="assistant", content=piece, delta=True)
    stats = {"total_tokens": 900, "input_tokens": 800, "output_tokens": 100, "cached": 300, "input": 500}
    result = {"status": "success", "stats": {**stats, "duration_ms": 1500, "tool_calls": 1, "models": {}}}
    if script.has("cut"):
        emit_half({"type": "result", "timestamp": AT, **result})
    elif not script.has("no-result"):
        say("result", **result)
    leave(script, 0)


def fail(script: Script, kind: str, message: str, code: int) -> NoReturn:
    say("result", status="error", error={"type": kind, "message": message}, stats={"total_tokens": 10})
    leave(script, code)


if __name__ == "__main__":
    main()
