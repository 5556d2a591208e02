-- uses: base, lock_queues
-- flags: no-writes
-- lock_expired: list expired lock requests, request.limit at most, as `<namespace>:<id>`.

return read_key('ZRANGEBYSCORE', LEASES, '-inf', whole(STEADY), 'LIMIT', 0, request.limit)
