-- All readers.
SELECT name, seq FROM cursor
