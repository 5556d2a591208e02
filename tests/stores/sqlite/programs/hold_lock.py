"""Hold the write lock of a database for some seconds: say so, then let go."""

import sys
import time

import apsw

path, seconds = sys.argv[1], float(sys.argv[2])
connection = apsw.Connection(path)
connection.set_busy_timeout(10_000)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE meta SET value = value")
print("held", flush=True)
time.sleep(seconds)
connection.execute("COMMIT")
print("free", flush=True)
