"""One measurement of one contestant: `python -m benchmarks.run_one <contestant> <measure> <json options>`.

Prints one line of JSON: `figures`, or `not_offered` with the reason, or `configuration` for `describe`.
"""

import json
import sys
from collections.abc import Mapping

from benchmarks.contestants import ENTRIES, Subject, load, load_http, load_locks
from benchmarks.contract import NotOffered, Options
from benchmarks.http_measures import HTTP_MEASURES
from benchmarks.lock_measures import LOCK_MEASURES
from benchmarks.measures import MEASURES, Figures


def run(contestant: str, measure: str, options: Options) -> Mapping[str, object]:
    if measure == "describe":
        return {"configuration": dict(_described(contestant, options))}
    try:
        return {"figures": dict(_figures(contestant, measure, options))}
    except NotOffered as reason:
        return {"not_offered": str(reason)}


def _described(contestant: str, options: Options) -> Mapping[str, str]:
    match ENTRIES[contestant].subject:
        case Subject.TASKS:
            return load(contestant).describe(options.place)
        case Subject.LOCKS:
            return load_locks(contestant).describe(options.place)
        case Subject.HTTP:
            return load_http(contestant).describe(options.place)


def _figures(contestant: str, measure: str, options: Options) -> Figures:
    match ENTRIES[contestant].subject:
        case Subject.TASKS:
            return MEASURES[measure](contestant, load(contestant), options)
        case Subject.LOCKS:
            return LOCK_MEASURES[measure](contestant, load_locks(contestant), options)
        case Subject.HTTP:
            return HTTP_MEASURES[measure](contestant, options)


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], Options.from_json(sys.argv[3]))))
