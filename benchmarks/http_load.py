"""Those who ask, in a process of their own: `python -m benchmarks.http_load <kind> <site> <json>`.

A line `saturate <seconds>` is answered with the rate reached, `pace <rate> <seconds>` with all waits in seconds.
"""

import sys
from collections.abc import Sequence

from benchmarks.contract import Options, Site
from benchmarks.cores import other_cores, stay_on
from benchmarks.http_connections import Connection, Load
from benchmarks.http_processes import answer
from benchmarks.http_requests import EXPECTED, REQUESTS, BadAnswer
from benchmarks.producing import random_moments

SEED = 1


def main(kind: str, site: Site, options: Options) -> None:
    stay_on(other_cores())
    try:
        connections = [Connection(site) for _ in range(options.connections)]
        load = Load(connections, REQUESTS[kind](site, options.payload_bytes), EXPECTED[kind])
        for line in sys.stdin:
            answer({**_done(load, line.split()), "sent": load.sent})
    except (BadAnswer, OSError) as error:
        answer({"failure": f"{type(error).__name__}: {error}"})


def _done(load: Load, words: Sequence[str]) -> dict[str, float | list[float]]:
    match words:
        case ["saturate", seconds]:
            return {"rate": load.saturate(float(seconds))}
        case ["pace", rate, seconds]:
            return {"waits": load.pace(random_moments(float(rate), float(seconds), SEED))}
    raise ValueError(f"no such order: {words}")


if __name__ == "__main__":
    main(sys.argv[1], Site.from_json(sys.argv[2]), Options.from_json(sys.argv[3]))
