-- uses: base, streams, stream_lag
-- flags: allow-oom
-- check_waiting_counts: check whether the counts of waiting entries match the streams. request.streams: names as
--   '<priority>:<queue>' in addition to the counted ones; request.repair: correct the counts. Returns sentences about wrong
--   counts.

local known, levels, faults = {}, {}, {}
local counted = call('HGETALL', P .. 'queue:levels')
for place = 1, #counted, 2 do
  known[counted[place]] = tonumber(counted[place + 1])
  levels[counted[place]] = true
end
for _, level in ipairs(request.streams) do
  levels[level] = true
end

for level in pairs(levels) do
  local priority, queue = string.match(level, '^(%d):(.*)$')
  local there = waiting_in(STREAM .. queue .. ':' .. priority)
  if there ~= (known[level] or 0) then
    faults[#faults + 1] = 'level ' .. level .. ' is ' .. (known[level] or 0) .. ', undelivered entries are ' .. there
    if request.repair then
      call('HSET', P .. 'queue:levels', level, there)
    end
  end
end
if request.repair and #faults > 0 then
  notify('work')
end
return faults
