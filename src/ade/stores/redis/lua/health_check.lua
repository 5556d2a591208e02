-- uses: base, fields, state, streams, stream_lag
-- flags: no-writes
-- health_check: compare sums that must agree, and return a sentence for each difference: something was lost. Quick, however many
--   tasks there are.

local found = {}
local by_status, all = {}, 0
local counted = call('HGETALL', P .. 'tally')
for place = 1, #counted, 2 do
  local status = string.match(counted[place], '[^:]*$')
  by_status[status] = (by_status[status] or 0) + tonumber(counted[place + 1])
  all = all + tonumber(counted[place + 1])
end

local function compare(what, number, index)
  local there = call('ZCARD', P .. index)
  if there ~= number then
    found[#found + 1] = number .. ' ' .. what .. ' are counted, ' .. index .. ' has ' .. there
  end
end

compare('tasks', all, 'task:all')
compare('running tasks', by_status['running'] or 0, 'queue:leases')
local ended = 0
for status, number in pairs(by_status) do
  ended = ended + (FINAL[status] and number or 0)
  if not COMMON[status] then
    compare(status .. ' tasks', number, 'task:index:state:' .. status)
  end
end
compare('ended tasks', ended, 'task:finished')

local function sum(key)
  local total = 0
  for _, number in ipairs(call('HVALS', P .. key)) do
    total = total + tonumber(number)
  end
  return total
end

if sum('queue:depth') ~= all - ended then
  found[#found + 1] = (all - ended) .. ' unfinished tasks are counted, queue:depth says ' .. sum('queue:depth')
end
if sum('queue:running') ~= (by_status['running'] or 0) then
  found[#found + 1] = (by_status['running'] or 0) .. ' running tasks are counted, queue:running says ' .. sum('queue:running')
end
local levels, is_counted = call('HGETALL', P .. 'queue:levels'), {}
for place = 1, #levels, 2 do
  is_counted[levels[place]] = true
  local priority, queue = string.match(levels[place], '^(%d):(.*)$')
  local number, there = tonumber(levels[place + 1]), waiting_in(STREAM .. queue .. ':' .. priority)
  if number ~= there then
    found[#found + 1] = number .. ' entries should wait in stream ' .. queue .. ':' .. priority .. ', there are ' .. there
  end
end
for _, queue in ipairs(call('HKEYS', P .. 'queue:depth')) do
  for priority = 0, 9 do
    local there = is_counted[priority .. ':' .. queue] and 0 or waiting_in(STREAM .. queue .. ':' .. priority)
    if there > 0 then
      found[#found + 1] = there .. ' entries wait in stream ' .. queue .. ':' .. priority .. ', queue:levels has none'
    end
  end
end
local lost = call('HGET', KEYS[1], 'lost')
if lost then
  found[#found + 1] = lost .. ' was read before, but had no group'
end
return found
