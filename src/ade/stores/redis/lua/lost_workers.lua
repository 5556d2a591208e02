-- uses: base
-- flags: no-writes
-- lost_workers: list the ids of workers whose heartbeat expired more than request.lost_ms ago, the earliest first.

return call('ZRANGEBYSCORE', P .. 'workers:heartbeat', '-inf', '(' .. whole(STEADY - request.lost_ms))
