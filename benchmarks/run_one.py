"""One measurement of one contestant: `python -m benchmarks.run_one <contestant> <measure> <json options>`.

Prints one line of JSON: `figures`, or `not_offered` with the reason, or `configuration` for `describe`.
"""

import json
import sys
from collections.abc import Mapping

from benchmarks.contestants import ENTRIES, Subject, load, load_locks
from benchmarks.contract import NotOffered, Options
from benchmarks.lock_measures import LOCK_MEASURES
from benchmarks.measures import MEASURES


def run(contestant: str, measure: str, options: Options) -> Mapping[str, object]:
    is_queue = ENTRIES[contestant].subject is Subject.TASKS
    if measure == "describe":
        known = load(contestant) if is_queue else load_locks(contestant)
        return {"configuration": dict(known.describe(options.place))}
    try:
        if is_queue:
            return {"figures": dict(MEASURES[measure](contestant, load(contestant), options))}
        return {"figures": dict(LOCK_MEASURES[measure](contestant, load_locks(contestant), options))}
    except NotOffered as reason:
        return {"not_offered": str(reason)}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], Options.from_json(sys.argv[3]))))
