-- uses: base
-- flags: allow-oom
-- reserve_tick: return {a tick before all future events of this partition, whether it is far ahead of its clock}.
--   request.at_least: not before this one, if given (as text).

local FAR_US = 1000000
local before = tonumber(call('HGET', KEYS[1], 'tick') or '0')
local from = math.max(SERVER_US, tonumber(request.at_least or '0'))
local aligned = from - from % PARTITIONS + PARTITION
local promised = math.max(aligned < from and aligned + PARTITIONS or aligned, before)
call('HSET', KEYS[1], 'tick', whole(promised))
return { whole(promised), promised > SERVER_US + FAR_US and 1 or 0 }
