-- uses: base
-- flags: no-writes
-- silent: ids of the workers whose heartbeat ended more than request.silent_ms ago, the longest silent first.

return call('ZRANGEBYSCORE', P .. 'workers:heartbeat', '-inf', '(' .. whole(STEADY - request.silent_ms))
