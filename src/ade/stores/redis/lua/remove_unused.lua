-- uses: base
-- flags: allow-oom
-- remove_unused: delete unused streams and consumers. request.streams: keys of task streams; request.known: ids of workers;
--   request.idle_ms.
-- A stream is deleted when it is empty, has nothing pending, and was not written for that long; the next task creates it again. A
--   consumer is deleted when its worker is unknown, idle for that long, and has nothing pending. Then the results stream is
--   trimmed behind all its groups, and by age in any case: request.results_ms. Returns the numbers of {streams, consumers,
--   results} deleted.

local function facts_of(flat)
  local facts = {}
  for place = 1, #flat, 2 do
    facts[flat[place]] = flat[place + 1]
  end
  return facts
end

local known = {}
for _, worker in ipairs(request.known) do
  known[worker] = true
end

local streams, consumers = 0, 0

local function remove_unknown_consumers(stream)
  local pending = 0
  for _, flat in ipairs(call('XINFO', 'GROUPS', stream)) do
    local group = facts_of(flat)
    pending = pending + group.pending
    if group.name == GROUP then
      for _, each in ipairs(call('XINFO', 'CONSUMERS', stream, GROUP)) do
        local consumer = facts_of(each)
        if not known[consumer.name] and consumer.pending == 0 and consumer.idle > request.idle_ms then
          call('XGROUP', 'DELCONSUMER', stream, GROUP, consumer.name)
          consumers = consumers + 1
        end
      end
    end
  end
  return pending
end

for _, stream in ipairs(request.streams) do
  if call('EXISTS', stream) == 1 then
    local pending = remove_unknown_consumers(stream)
    local last = facts_of(call('XINFO', 'STREAM', stream))['last-generated-id']
    local written_us = tonumber(string.match(last, '^%d+'))
    if pending == 0 and call('XLEN', stream) == 0 and written_us < SERVER_US - request.idle_ms * 1000 then
      streams = streams + call('DEL', stream)
    end
  end
end

local function later(one, other)
  local ms, number = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms > other_ms or (ms == other_ms and tonumber(number) > tonumber(other_number))
end

-- The oldest result that a group has not read or not acknowledged; nil without groups.
local function first_needed()
  local first
  for _, flat in ipairs(call('XINFO', 'GROUPS', RESULTS)) do
    local group = facts_of(flat)
    local oldest_pending = call('XPENDING', RESULTS, group.name)[2]
    local ms, number = string.match(group['last-delivered-id'], '^(%d+)-(%d+)$')
    local needed = oldest_pending or (ms .. '-' .. whole(tonumber(number) + 1))
    first = first and later(first, needed) and needed or first or needed
  end
  return first
end

local results = 0
if call('EXISTS', RESULTS) == 1 then
  local by_age = whole(math.floor(SERVER_US / 1000) - request.results_ms) .. '-0'
  local needed = first_needed() or by_age
  results = call('XTRIM', RESULTS, 'MINID', later(needed, by_age) and needed or by_age)
end
return { streams, consumers, results }
