-- uses: base
-- flags: allow-oom
-- promise: answer {a tick behind which all future events of this partition will lie, whether that is far ahead of its clock}.
-- request.at_least: not before this one, if given (as text).

local FAR_US = 1000000
local before = tonumber(call('HGET', KEYS[1], 'tick') or '0')
local from = math.max(SERVER_US, tonumber(request.at_least or '0'))
local aligned = from - from % PARTITIONS + PARTITION
local promised = math.max(aligned < from and aligned + PARTITIONS or aligned, before)
call('HSET', KEYS[1], 'tick', whole(promised))
return { whole(promised), promised > SERVER_US + FAR_US and 1 or 0 }
