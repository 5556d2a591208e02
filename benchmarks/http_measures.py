"""The measurements over HTTP, the same for every server. Each returns named figures."""

from collections.abc import Callable, Mapping
from functools import partial

from benchmarks import http_processes as processes
from benchmarks.contract import Options, Site
from benchmarks.cores import keep_store_off, other_cores
from benchmarks.figures import percentile
from benchmarks.http_events import http_events
from benchmarks.measures import Figures, server_cpu

HttpMeasure = Callable[[str, Options], Figures]


def requests(kind: str, name: str, options: Options) -> Figures:
    """How many requests are answered when all ask without a pause, and how fast at half that rate."""
    keep_store_off(options.server, other_cores())
    with processes.server(name, options) as server:
        site = Site(**server.hear())
        with processes.requests(kind, site, options) as load, server_cpu(options) as store_used:
            load.ask("saturate", options.seconds / 4)  # warms up everything on both sides
            before, load_before, store_before = server.cpu_seconds(), load.cpu_seconds(), store_used()
            rate: float = load.ask("saturate", options.seconds)["rate"]
            used, load_used = server.cpu_seconds() - before, load.cpu_seconds() - load_before
            store = store_used() - store_before
            paced = load.ask("pace", rate / 2, options.seconds)
        stored = server.terminate()["stored"]
    if kind == "create" and stored is not None and stored < paced["sent"] + options.stock:
        raise RuntimeError(f"{paced['sent']} tasks were accepted and {stored - options.stock} stored")
    answered = rate * options.seconds
    return {
        "requests_per_second": rate,
        "half_p50_ms": 1000 * percentile(paced["waits"], 50),
        "half_p99_ms": 1000 * percentile(paced["waits"], 99),
        "request_us": 1e6 * used / answered,
        **({"store_us": 1e6 * store / answered} if options.server else {}),
        "cpu_percent": 100 * used / options.seconds,
        "load_percent": 100 * load_used / options.seconds,
        "requests": paced["sent"],
    }


HTTP_MEASURES: Mapping[str, HttpMeasure] = {
    **{f"http_{kind}": partial(requests, kind) for kind in ("create", "get", "list")},
    "http_events": http_events,
}
