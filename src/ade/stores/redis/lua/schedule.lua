-- uses: base, fields, state, memory, log
-- schedule: write or remove a schedule. request.name; request.seen: what must be there now, or false for whatever is;
-- request.text: the schedule from now on (JSON), or false to remove it; request.due: ms of its next firing, or false when it is
--   paused; request.event: packed event that tells of it, or false; request.token. Answers 1, or 0 when there is nothing to remove or something else than what was seen.

local known = remembered()
if known then
  return known
end
local there = call('HGET', P .. 'schedules', request.name)
if (request.seen and there ~= request.seen) or not (there or request.text) then
  return 0
end
if request.text then
  call('HSET', P .. 'schedules', request.name, request.text)
else
  call('HDEL', P .. 'schedules', request.name)
end
if request.text and request.due then
  call('ZADD', P .. 'schedules:due', whole(request.due), request.name)
else
  call('ZREM', P .. 'schedules:due', request.name)
end
if request.event then
  events[1], told = request.event, 1
  close_log()
end
return remember(1)
