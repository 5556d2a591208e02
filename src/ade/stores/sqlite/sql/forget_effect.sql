-- Take an entry out of the ledger.
DELETE FROM effect WHERE key = :key
