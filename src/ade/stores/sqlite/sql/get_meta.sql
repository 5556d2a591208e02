-- One fact about this database.
SELECT value FROM meta WHERE key = :key
