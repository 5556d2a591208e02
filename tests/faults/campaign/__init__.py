"""A campaign of random kills: `python -m tests.faults.campaign`, or `make campaign`.

Producers, workers and clerks (who keep the audit copy and replay dead letters) share one database file, or with
`--store redis` (or `valkey`, `cluster`) servers, with thousands of tasks in flight, while a nemesis kills them at
random, suspends some for longer than their leases, and starts them again. All of them write down what they did and
what they were told. At the end everything may drain; then what they wrote is held against what the store says.

`plan` has the numbers, `app` the tasks, `trails` the files that are written, `roles` what the processes do, `nursery`
starts them, `nemesis` harms them, `history` and `judgement` find what must never be, `course` is the whole of it.
"""
