"""Texts and numbers of a certain kind, as the description of the interface tells them.

They are told here and checked where they are used, in words of their own, so that whoever writes one wrongly hears the
same over HTTP, from the command line and in Python. A test compares the two.
"""

from typing import Annotated, Any

from msgspec import Meta


def told(**schema: Any) -> Meta:
    return Meta(extra_json_schema=schema)


_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_WORD = "[^\\u0000-\\u0020\\u007f-\\u00a0{}]"

TaskName = Annotated[str, told(pattern="^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$")]
QueueName = Annotated[str, told(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Namespace = Annotated[str, told(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
TaskId = Annotated[str, told(pattern=f"^{_UUID}$")]
Capability = Annotated[str, told(pattern="^[a-z0-9][a-z0-9._-]{0,49}$")]
AgentType = Annotated[str, told(pattern="^([A-Za-z0-9][A-Za-z0-9._-]{0,49})?$")]
RateText = Annotated[str, told(pattern="^[1-9][0-9]{0,8}/([1-9][0-9]{0,5})?[smhd]$")]
EventType = Annotated[str, told(pattern="^(\\*|[a-z][a-z0-9_]*(\\.[a-z][a-z0-9_]*)*(\\.\\*)?)$", maxLength=100)]
EventPattern = Annotated[str, told(pattern="^(\\*|[a-z0-9_]+(\\.[a-z0-9_]+)*(\\.\\*)?)$", maxLength=100)]  # of webhooks
InboxName = Annotated[str, told(pattern=f"^{_WORD}{{1,200}}$")]
AccountName = Annotated[str, told(pattern="^[^\\u0000-\\u0020\\u007f-\\u00a0{}:/,\"'`]{1,100}$")]
RoleName = Annotated[str, told(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$")]
LockName = Annotated[str, told(pattern="^[^\\u0000-\\u001f\\u007f-\\u00a0{}]{1,512}$")]  # up to 512 bytes
Label = Annotated[str, told(minLength=1, maxLength=100)]  # of printable characters, as keys are
Key = Annotated[str, told(minLength=1, maxLength=500)]
HttpsUrl = Annotated[str, told(pattern="^https?://[!-\\[\\]-~]+$", maxLength=2_000)]
NEW_PASSWORD = told(minLength=12)
Priority = Annotated[int, told(minimum=0, maximum=9)]
Attempts = Annotated[int, told(minimum=1, maximum=1_000)]
Span = Annotated[float, told(minimum=0.001)]  # seconds
