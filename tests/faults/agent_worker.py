"""A worker that runs agents, with short leases. Its arguments are its folder and the seconds of a lease."""

import sys
from pathlib import Path

from tests.agents.runs.fake_agent_app import app
from tests.domain import WorkerSettings


def main() -> None:
    made = app(Path(sys.argv[1]), worker=WorkerSettings(lease_s=float(sys.argv[2]), heartbeat_s=0.4, grace_s=1.0))
    made.run_worker()


if __name__ == "__main__":
    main()
