-- One copier at a time, until the transaction ends. A lock on the table would ask for more rights than INSERT.
SELECT pg_advisory_xact_lock(1094993217, 1)
