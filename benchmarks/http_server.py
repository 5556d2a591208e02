"""The server of a measurement in its own process: `python -m benchmarks.http_server <contestant> <json>`.

Tells its site when it answers, and on SIGTERM how many tasks it has stored.
"""

import sys

from benchmarks.contestants import load_http
from benchmarks.contract import Options, Site
from benchmarks.cores import server_cores, stay_on
from benchmarks.http_processes import answer


def main(contestant: str, options: Options) -> None:
    stay_on(server_cores())  # before there are threads
    server = load_http(contestant)

    def announce(site: Site) -> None:
        print(site.to_json(), flush=True)

    answer({"stored": server.serve(options.place, options.stock, announce)})


if __name__ == "__main__":
    main(sys.argv[1], Options.from_json(sys.argv[2]))
