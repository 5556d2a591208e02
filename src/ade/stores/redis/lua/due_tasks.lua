-- uses: base, fields, state, streams, task_streams, leases
-- flags: allow-oom
-- due_tasks: list the tasks that a sweep must decide on, each list bounded by request.limit: {expired leases, missed deadlines,
--   broken dependencies, reported outcomes}. Records as in lib/state.lua; one with a broken dependency is followed by the ids of
--   its broken dependencies, one with a reported outcome by the outcome (JSON).
-- As a safety net, parked tasks become ready when no run holds their concurrency key.

repair_leases()
call('HSET', KEYS[1], 'looked', whole(STEADY))

local function records(key, limit, aside)
  local found = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', limit, 'LIMIT', 0, request.limit)) do
    local record = record_of(id)
    if not record[2] then
      call('ZREM', key, id)
    elseif not aside or call('HEXISTS', aside, id) == 0 then
      found[#found + 1] = record
    end
  end
  return found
end

local broken = {}
for _, id in ipairs(call('SRANDMEMBER', P .. 'queue:broken', request.limit)) do
  local state = read_state(id)
  local failed = {}
  local needs = call('HGETALL', P .. 'task:needs:' .. id)
  for place = 1, #needs, 2 do
    if string.sub(needs[place + 1], 1, 6) == 'broken' then
      failed[#failed + 1] = needs[place]
    end
  end
  if state and WAITS[state[STATUS]] and #failed > 0 then
    local record = record_of(id)
    record[6] = failed
    broken[#broken + 1] = record
  else -- it ended or is a draft again; a draft that is submitted comes back
    call('SREM', P .. 'queue:broken', id)
  end
end

-- Runs whose workers have reported an outcome. They wait for the sweep, so their leases no longer count.
local MOST_BYTES = 8388608 -- outcomes in one answer
local HANDED = P .. 'queue:handed'
local handed, bytes = {}, 0
local ended = call('HRANDFIELD', HANDED, request.limit, 'WITHVALUES')
for place = 1, #ended, 2 do
  local id, run_id, outcome = ended[place], unpack(cmsgpack.unpack(ended[place + 1]))
  local state = read_state(id)
  if not state or state[STATUS] ~= 'running' or state[RUN_ID] ~= run_id then
    call('HDEL', HANDED, id)
  elseif bytes < MOST_BYTES then
    local record = record_of(id)
    record[6] = outcome
    handed[#handed + 1] = record
    bytes = bytes + #outcome
  end
end

local freed = false
for _, parking in ipairs(call('SRANDMEMBER', P .. 'queue:parkings', 100)) do
  if call('EXISTS', P .. 'queue:key:' .. parking) == 0 then
    freed = unpark(parking) or freed
  end
end
if freed then
  notify('work')
end
local expired = records(P .. 'queue:leases', '(' .. whole(STEADY), HANDED)
return { expired, records(P .. 'queue:deadlines', whole(NOW)), broken, handed }
