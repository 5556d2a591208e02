"""Hold the write lock of a database: say so, and let go when a line comes in."""

import sys

import apsw

connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(10_000)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE meta SET value = value")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
print("free", flush=True)
