-- uses: base, lock_places
-- flags: no-writes
-- lock_ends: requests for locks whose time is over, at most request.limit, as `<namespace>:<id>`.

return look('ZRANGEBYSCORE', LEASES, '-inf', whole(STEADY), 'LIMIT', 0, request.limit)
