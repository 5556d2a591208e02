"""One measurement of one contestant: `python -m benchmarks.run_one <contestant> <measure> <json options>`.

Prints one line of JSON: `figures`, or `not_offered` with the reason, or `configuration` for `describe`.
"""

import json
import sys
from collections.abc import Mapping

from benchmarks.contestants import load
from benchmarks.contract import NotOffered, Options
from benchmarks.measures import MEASURES


def run(contestant: str, measure: str, options: Options) -> Mapping[str, object]:
    queue = load(contestant)
    if measure == "describe":
        return {"configuration": dict(queue.describe(options.place))}
    try:
        return {"figures": dict(MEASURES[measure](contestant, queue, options))}
    except NotOffered as reason:
        return {"not_offered": str(reason)}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], Options.from_json(sys.argv[3]))))
