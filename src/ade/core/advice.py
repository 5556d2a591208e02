"""Advice: what helps somebody at a command line, kept apart from sentences that others read over HTTP."""


def with_advice(told: str, advice: str | None) -> str:
    """One text of both, for who sits at a command line."""
    if not advice:
        return told
    return f"{told} {advice}." if told.endswith(".") else f"{told}; {advice}"
