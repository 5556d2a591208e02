"""The bars of the HTTP interface, the same on both stores."""

from collections.abc import Iterator

from benchmarks.judging import Bar, LimitBar, RatioBar, Score

TITLES = {"http_create": "HTTP create", "http_get": "HTTP get", "http_list": "HTTP list of 50"}
RATE = "requests_per_second"
WITHIN_TWICE = 1 / 2
BARE, FRAMEWORK = "the bare server that does nothing", "FastAPI that does nothing"
STORING = "the bare server that stores by ADE's queue"


def http_bars(own: str, bare: str, storing: str, framework: str) -> Iterator[Bar]:
    """Within twice a server that does nothing, and within twice one that stores as ADE does."""
    created = Score(own, [("http_create", RATE)])
    yield LimitBar(title="HTTP create, requests on one core", own=created, unit="/s", bar=1500, less_is_better=False)
    yield _ratio("http_create", own, storing, STORING)
    for step, title in TITLES.items():
        yield _ratio(step, own, bare, BARE)
        yield _ratio(step, own, framework, FRAMEWORK)
        worst = Score(own, [(step, "half_p99_ms")])
        yield LimitBar(title=f"{title}, p99 at half load", own=worst, unit="ms", bar=20)
    for rival, rivals_title in ((bare, BARE), (storing, STORING), (framework, FRAMEWORK)):
        yield _cpu_ratio(own, rival, rivals_title)
    for figure in ("lost", "duplicates"):
        score = Score(own, [("http_events", figure)])
        yield LimitBar(title=f"HTTP events, {figure}", own=score, unit="events", bar=0)


def _ratio(step: str, own: str, rival: str, rivals_title: str) -> RatioBar:
    scores = [Score(name, [(step, RATE)]) for name in (own, rival)]
    return RatioBar(title=TITLES[step], own=scores[0], rivals=scores[1:], rivals_title=rivals_title, bar=WITHIN_TWICE)


def _cpu_ratio(own: str, rival: str, rivals_title: str) -> RatioBar:
    """Shown because it hardly suffers from what else the machine does; a rate does."""
    scores = [Score(name, [("http_create", "request_us")]) for name in (own, rival)]
    title = f"{TITLES['http_create']}, CPU per request"
    return RatioBar(title=title, own=scores[0], rivals=scores[1:], rivals_title=rivals_title, less_is_better=True)
