"""Group failures that are the same mistake: numbers, ids and quoted values do not count."""

import hashlib
import re

from ade.core.errors import AdeError
from ade.core.failure import TaskError

_VARIABLE = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I), "<id>"),
    (re.compile(r"0x[0-9a-f]+", re.I), "<address>"),
    (re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\""), "<text>"),  # the apostrophe of "can't" opens no quotation
    (re.compile(r"\b[0-9a-f]{12,}\b", re.I), "<hex>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)

_READ, _KEPT = 3_000, 300


class UnknownFingerprint(AdeError):
    """No dead letter has this fingerprint."""

    code = "unknown_fingerprint"
    usual_advice = "`ade dlq list` shows those there are"


def pattern(message: str) -> str:
    """The first line of the message with everything that varies replaced by a word."""
    lines = message.strip().splitlines()
    first = lines[0][:_READ] if lines else ""
    for variable, word in _VARIABLE:
        first = variable.sub(word, first)
    return first[:_KEPT]  # cut last: a value that is cut in two no longer looks like one


def fingerprint(name: str, error: TaskError) -> str:
    """Short and stable: the same task name failing in the same way has the same fingerprint."""
    text = f"{name}\n{error.type}\n{pattern(error.message)}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
