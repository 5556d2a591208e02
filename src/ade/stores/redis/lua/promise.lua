-- uses: base
-- flags: allow-oom
-- promise: answer a tick behind which all future events of this partition will lie.

local before = tonumber(call('HGET', KEYS[1], 'tick') or '0')
local promised = math.max(SERVER_US - SERVER_US % PARTITIONS + PARTITION, before)
call('HSET', KEYS[1], 'tick', whole(promised))
return whole(promised)
