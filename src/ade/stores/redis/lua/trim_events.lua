-- uses: base, fields, state, log
-- flags: allow-oom
-- trim_events: delete entries of the event log: request.entries. The newest seq is stored, so that the log never seems to start
--   over.

local newest = call('XREVRANGE', P .. 'events', '+', '-', 'COUNT', 1)[1]
if newest then
  local first = tonumber(string.match(newest[1], '^%d+'))
  local last = first + (count_events_in(newest[2][2]) - 1) * PARTITIONS
  call('HSET', KEYS[1], 'last_event', whole(last))
end
for from = 1, #request.entries, 1000 do
  call('XDEL', P .. 'events', unpack(request.entries, from, math.min(from + 999, #request.entries)))
end
return #request.entries
