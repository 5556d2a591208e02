-- uses: base, fields, state, streams, task_streams, leases, continuity, log
-- flags: allow-oom
-- due_tasks: list the tasks that a sweep must decide on, each list bounded by request.limit: {expired leases, missed deadlines,
--   broken dependencies, reported outcomes}. Records as in lib/state.lua; one with a broken dependency is followed by the ids of
--   its broken dependencies, one with a reported outcome by the outcome (JSON). A fifth value is 1, or 0 when the
--   server's time is not what the caller expects: no lease is judged. request.clock is explained in lib/continuity.lua. A new step
--   of the clock is logged.
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
watch_clock()
local MOST_LEASE_MS = 600000 -- assumed for runs that an earlier version has renewed
local longest = call('HGET', KEYS[1], 'lease') -- of a run that was renewed lately, as in renew.lua
longest = longest and cmsgpack.unpack(longest)[1]
local expired = {}
for _, record in ipairs(records(P .. 'queue:leases', '(' .. whole(STEADY), HANDED)) do
  local state = cmsgpack.unpack(record[2])
  if has_expired(state[LEASE], longest or math.min(state[LEASE] - (state[STARTED] or 0), MOST_LEASE_MS)) then
    expired[#expired + 1] = record
  end
end
local step = call('HGET', KEYS[1], 'unreported')
if step then
  call('HDEL', KEYS[1], 'unreported')
  local about = { what = 'clock_stepped', step_ms = tonumber(step), partition = PARTITION }
  append_event(string.char(149) .. cmsgpack.pack('alert', NOW, nil, nil, about)) -- an array of five
  flush_log()
end
return { expired, records(P .. 'queue:deadlines', whole(NOW)), broken, handed, (request.steady or continuous) and 1 or 0 }
