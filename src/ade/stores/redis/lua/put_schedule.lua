-- uses: base, fields, state, request_dedup, log
-- put_schedule: write or delete a schedule. request.name; request.seen: the expected schedule, or false for any; request.text:
--   the new schedule (JSON), or false to delete it; request.due: ms of its next firing, or false when it is paused;
--   request.event: packed event, or false; request.token. Returns 1, or 0 when there is nothing to delete or the schedule is not
--   the expected one.

local known = known_answer()
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
  append_event(request.event)
  flush_log()
end
return keep_answer(1)
