-- uses: base, types, fields, state, log, counters, streams, leases, worker_filter, fast_path
-- flags: allow-oom
-- claim: assign due tasks to one worker, by priority, then age, as running tasks with a lease.
-- request.id (the same when a request is repeated), request.worker, request.run_ids (one for each requested task), request.names,
--   request.queues (empty: all), request.capabilities (or none), request.lease_ms.
-- With several partitions: request.limited decides about names with limits: 'skip' leaves them out; otherwise {running, rates,
--   busy, not_after} is the usage in other partitions, and until when no other process claims them (steady ms): after that they
--   are left out too. request.bound, {priority, seq}: claim nothing behind it. request.of: the id under which the tasks of
--   several calls are stored together; a call with this id returns them.
-- Returns {more, record, ...}: records as in lib/state.lua; `more` is 1 when the call stopped early with work left. A repeated
--   request returns the same tasks, as far as they still run. A request in JSON gets each record as one JSON text.

-- For workers in other languages, which send JSON: a record as one JSON text that hides the storage layout.
local function as_json(record)
  local state = cmsgpack.unpack(record[2])
  local fields = cjson.encode({ id = record[1], run_id = state[RUN_ID], name = state[NAME], queue = state[QUEUE],
    priority = state[PRIORITY], attempt = state[ATTEMPT], generation = state[GENERATION], lease_until = state[LEASE] })
  local parts = { string.sub(fields, 1, -2), ',"detail":', record[3] or 'null' } -- already JSON, and not decoded here
  for place, field in pairs({ [4] = 'outcome', [5] = 'progress' }) do
    if record[place] then
      parts[#parts + 1] = ',"' .. field .. '":' .. record[place]
    end
  end
  return table.concat(parts) .. '}'
end

-- The records of an answer (all but its first element) in the format of the request.
local function as_requested(answer)
  for place = 2, IS_JSON and #answer or 0 do
    answer[place] = as_json(answer[place])
  end
  return answer
end

local run_ids = request.run_ids
local answer_key = P .. 'claim:' .. request.id
local answer = { 0 }

local function repeated()
  local known = call('GET', answer_key)
  if not known then
    return false
  end
  local given = cmsgpack.unpack(known)
  for place = 1, #given, 3 do
    local state = read_state(given[place])
    if state and state[STATUS] == 'running' and state[RUN_ID] == given[place + 1] then
      answer[#answer + 1] = record_of(given[place])
    end
  end
  return true -- even if none of them still runs: a run id is never used twice
end

local function keep_claim(key, packed)
  call('SET', key, packed, 'PX', request.lease_ms + 60000) -- longer than a request is repeated
end

if #run_ids == 0 or repeated() then -- XREADGROUP with COUNT 0 would return all entries
  return as_requested(answer)
end

must_be({ P .. 'events', 'stream', P .. 'queue:leases', 'zset', P .. 'tally', 'hash', P .. 'queue:running', 'hash' })
repair_leases()
local lease_until = STEADY + request.lease_ms
local lease_text = whole(lease_until) -- a number argument is converted to text on every call, slowly
local taken, leases, moved, levels = {}, {}, 0, {} -- ids; lease, id, ...; number of tasks set aside; entries read from each stream
local claims = {} -- for the log and for a repeated request: id, run id, attempt, ...
local governed, governed_count = {}, 0 -- digests by run id: these claims are logged apart
local plain_kinds = {} -- queue, name, and number of plain tasks that were started
local bound = request.bound
local is_capable = request.capabilities and request.capabilities[1]

-- The streams with waiting entries, by priority.
local streams = {}
for priority = 0, 9 do
  streams[priority] = {}
end
local counted = call('HGETALL', P .. 'queue:levels')
for place = 1, #counted, 2 do
  local priority, queue = string.match(counted[place], '^(%d):(.*)$')
  if is_open(queue) and tonumber(counted[place + 1]) > 0 then
    local at = streams[tonumber(priority)]
    at[#at + 1] = { stream = stream_key(queue, priority), level = counted[place], queue = queue,
      priority = tonumber(priority), kinds = {} }
    must_be({ at[#at].stream, 'stream' })
  end
end

-- A stream that was read before has lost its group: all its entries are delivered again, and repair.lua must check it.
local function expect(stream, number, level)
  local there = call('XLEN', stream)
  if there ~= number then
    call('HSET', KEYS[1], 'lost', stream)
    if level then
      call('HSET', P .. 'queue:levels', level, there)
    end
  end
end

-- Read entries of a stream. A missing group is created at the start of the stream.
local function deliver(stream, number, level)
  local got = redis.pcall('XREADGROUP', 'GROUP', GROUP, request.worker, 'COUNT', number, 'STREAMS', stream, '>')
  if got and got.err then
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    expect(stream, level and tonumber(call('HGET', P .. 'queue:levels', level) or '0') or number, level)
    got = call('XREADGROUP', 'GROUP', GROUP, request.worker, 'COUNT', number, 'STREAMS', stream, '>')
  end
  return got and got[1] and got[1][2] or {}
end

local function take_delivery(source, number)
  local entries = deliver(source.stream, number, source.level)
  levels[source.level] = (levels[source.level] or 0) - #entries
  source.empty = #entries < number
  return entries
end

local function note_run(id, run_id, attempt)
  taken[#taken + 1] = id
  claims[#claims + 1] = id
  claims[#claims + 1] = run_id
  claims[#claims + 1] = attempt
  leases[#leases + 1] = lease_text
  leases[#leases + 1] = id
end

local function log_claims(packed)
  if governed_count == 0 then
    append_claims(request.worker, #taken, packed)
    return
  end
  local others = {}
  for place = 1, #claims, 3 do
    local id, run_id, attempt = claims[place], claims[place + 1], claims[place + 2]
    if governed[run_id] then
      append_governed_claim(request.worker, id, run_id, attempt, governed[run_id])
    else
      others[#others + 1], others[#others + 2], others[#others + 3] = id, run_id, attempt
    end
  end
  if #others > 0 then
    append_claims(request.worker, #others / 3, cmsgpack.pack(others))
  end
end

local function finish_claim()
  if #taken > 0 then
    in_portions('ZADD', P .. 'queue:leases', leases)
    local packed = cmsgpack.pack(claims)
    keep_claim(answer_key, packed)
    if request.of then
      local together = P .. 'claim:' .. request.of
      local known = call('GET', together)
      local all = known and cmsgpack.unpack(known) or {}
      for _, each in ipairs(claims) do
        all[#all + 1] = each
      end
      keep_claim(together, cmsgpack.pack(all))
    end
    for _, kind in ipairs(plain_kinds) do
      count_in(kind.queue, kind.name, 'pending', -kind.number)
      count_in(kind.queue, kind.name, 'running', kind.number)
    end
    flush_counts()
    log_claims(packed)
    flush_log()
  end
  move_counters(P .. 'queue:levels', levels)
  flush_streams()
  return as_requested(answer)
end

-- Plain tasks are started first, up to the first task that is not plain.
local packed_limits = call('HGETALL', P .. 'limits')
local is_limited = {}
for place = 1, #packed_limits, 2 do
  is_limited[packed_limits[place]] = true
end
local due = call('ZRANGEBYSCORE', P .. 'queue:delayed', '-inf', whole(NOW), 'LIMIT', 0, 1000)
local knows_plain = not passed and HAS_USUAL_TICKS
local run_begin = STATE .. cmsgpack.pack('running', false, 'stream', 2, 1)
local run_rest = cmsgpack.pack(request.worker, lease_until, NOW, false, 0, false, false, false, false, false, NOW)

-- Start the task of an entry if it is plain. Returns whether it was.
local function start_plain(source, entry)
  local id, name = entry[2][2], entry[2][4] or ''
  if not serves[name] or is_limited[name] then
    return false
  end
  local kind = source.kinds[name]
  if not kind then
    kind = { queue = source.queue, name = name, packed = cmsgpack.pack(source.queue, name, source.priority), number = 0 }
    source.kinds[name], plain_kinds[#plain_kinds + 1] = kind, kind
  end
  local key = task_key(id)
  local found = call('HMGET', key, 'state', 'detail')
  if not found[1] or not is_fresh(found[1], entry[1], kind.packed) then
    return false
  end
  local run_id = run_ids[#taken + 1]
  local packed = as_started(found[1], run_begin, run_id, run_rest)
  call('HSET', key, 'state', packed)
  note_run(id, run_id, 1)
  kind.number = kind.number + 1
  answer[#answer + 1] = { id, packed, found[2], false, false }
  return true
end

local unusual -- delivered entries, from the first that is not plain: {entries, source, from}

local function take_plain(source)
  local entries = take_delivery(source, #run_ids - #taken)
  for place, entry in ipairs(entries) do
    if not start_plain(source, entry) then
      unusual = { entries = entries, source = source, from = place }
      return
    end
  end
end

-- Whether nothing is left for the general path below.
local function take_all_plain()
  if not knows_plain or bound or #due > 0 or call('EXISTS', P .. 'queue:lines') == 1
    or (is_capable and call('EXISTS', P .. 'queue:asking') == 1) then
    return false
  end
  for priority = 0, 9 do
    local sources = streams[priority]
    if #sources > 1 then
      return false -- several streams must be merged by age
    elseif #sources == 1 then
      take_plain(sources[1])
    end
    if #taken == #run_ids or unusual then
      return not unusual
    end
  end
  return true
end

if take_all_plain() then
  return finish_claim()
end

-- uses: task_streams, rates, capabilities
-- How many more tasks of a limited name can start now.
local limits, capacities = {}, {}
local elsewhere = type(request.limited) == 'table' and request.limited or { running = {}, rates = {}, busy = {} }
local skips_limited = request.limited == 'skip' or (elsewhere.not_after and STEADY > elsewhere.not_after)
for place = 1, #packed_limits, 2 do
  local name = packed_limits[place]
  local limit = cmsgpack.unpack(packed_limits[place + 1]) -- concurrency, per key, rate count, rate period in ms
  local capacity = #run_ids
  if limit[1] then
    local running = tonumber(call('HGET', P .. 'queue:running', name) or '0') + (elsewhere.running[name] or 0)
    capacity = math.max(limit[1] - running, 0)
  end
  if limit[3] then
    local interval = interval_of(limit)
    limit.full_at = math.max(rate_full_at(name, limit), elsewhere.rates[name] or 0)
    local debt = math.max(limit.full_at - STEADY * 1000, 0)
    capacity = math.min(capacity, math.max(math.floor((limit[3] * interval - debt) / interval), 0))
    limit.interval = interval
  end
  limits[name], capacities[name] = limit, skips_limited and 0 or capacity
end

-- Delayed tasks that are due enter their lanes.
for _, id in ipairs(due) do
  local state = read_state(id)
  call('ZREM', P .. 'queue:delayed', id)
  if state and state[STAGE] == 'delayed' then
    enter_lane(id, state)
    write_state(id, state)
  end
end

local started = {} -- number of started tasks of each name with limits
local MOST_MOVED = 2000 -- limit for one call, so that it stays short
local busy = {} -- running tasks by name and concurrency key

local function is_key_busy(state, limit)
  if not state[KEY] or not limit or not limit[2] then
    return false
  end
  local parking = parking_of(state)
  busy[parking] = busy[parking] or call('SCARD', P .. 'queue:key:' .. parking) + (elsewhere.busy[parking] or 0)
  return busy[parking] >= limit[2]
end

local function start(id, state, found)
  local number = #taken + 1
  local previous = state[STATUS] == 'stalled' and state[WORKER]
  count(state, -1)
  if not COMMON[state[STATUS]] then
    call('ZREM', P .. 'task:index:state:' .. state[STATUS], id)
  end
  state[STATUS], state[STAGE], state[VERSION] = 'running', false, state[VERSION] + 1
  state[ATTEMPT], state[RUN_ID], state[WORKER] = state[ATTEMPT] + 1, run_ids[number], request.worker
  state[LEASE], state[STARTED], state[UPDATED] = lease_until, NOW, NOW
  count(state, 1)
  if state[DEADLINE] then
    call('ZREM', P .. 'queue:deadlines', id)
  end
  if state[KEY] then
    local parking = parking_of(state)
    call('SADD', P .. 'queue:key:' .. parking, id)
    busy[parking] = busy[parking] and busy[parking] + 1
  end
  if capacities[state[NAME]] then
    capacities[state[NAME]] = capacities[state[NAME]] - 1
    started[state[NAME]] = (started[state[NAME]] or 0) + 1
  end
  note_entry(state)
  if previous then
    append_task_events(state, { cmsgpack.pack({ 'task.reclaimed', NOW, id, false, { attempt = state[ATTEMPT],
      previous_worker = previous, new_worker = request.worker, entry = state[SEQ] } }) })
  end
  local packed = cmsgpack.pack(state)
  call('HSET', task_key(id), 'state', packed)
  note_run(id, run_ids[number], state[ATTEMPT])
  if state[APPROVED] then
    governed[run_ids[number]], governed_count = state[APPROVED], governed_count + 1
  end
  answer[number + 1] = { id, packed, found[2], found[3], found[4] }
end

-- This call cannot start a task of a stream: it enters its lane.
local function set_aside(id, state, stream, entry)
  remove_entry(stream, entry)
  moved = moved + 1
  enter_lane(id, state)
  write_state(id, state)
end

-- Start, park, or set aside the task of a delivered entry.
local function receive(source, delivered)
  if knows_plain and #taken < #run_ids and start_plain(source, delivered) then
    return
  end
  local stream, entry, id = source.stream, delivered[1], delivered[2][2]
  local found = call('HMGET', task_key(id), 'state', 'detail', 'outcome', 'progress')
  local state = found[1] and cmsgpack.unpack(found[1])
  if not state or state[WHERE] ~= 'stream' or whole(state[SEQ]) .. '-0' ~= entry then
    remove_entry(stream, entry) -- the task no longer exists, or is elsewhere
  elseif state[STATUS] == 'running' then
    return -- delivered again after its group was lost; its run continues
  elseif not serves[state[NAME]] or capacities[state[NAME]] == 0 or #taken == #run_ids or state[NEEDS] then
    set_aside(id, state, stream, entry)
  elseif is_key_busy(state, limits[state[NAME]]) then
    remove_entry(stream, entry)
    moved = moved + 1
    park(id, state)
    write_state(id, state)
  else
    start(id, state, found)
  end
end

local function take_delivered(source, number)
  for _, entry in ipairs(take_delivery(source, number)) do
    receive(source, entry)
  end
end

local from_lanes = {} -- ids of tasks taken from lanes

-- Take a task of a lane whose name has capacity.
local function take_from_lane(candidate)
  local limit = limits[candidate.name]
  local found = call('HMGET', task_key(candidate.id), 'state', 'detail', 'outcome', 'progress')
  local state = found[1] and cmsgpack.unpack(found[1])
  call('ZREM', P .. 'queue:line:' .. candidate.lane, candidate.member)
  if not state or state[STAGE] ~= 'ready' or state[WHERE] ~= 'line' then
    return
  elseif lane_of(state) ~= candidate.lane then -- put there by a version of ADE without capabilities
    moved = moved + 1
    enter_lane(candidate.id, state)
    return
  elseif is_key_busy(state, limit) then
    moved = moved + 1
    park(candidate.id, state)
    write_state(candidate.id, state)
    return
  end
  state[WHERE] = 'back:' .. call('XADD', P .. 'queue:back', '*', 'id', candidate.id, 'name', candidate.name)
  from_lanes[#from_lanes + 1] = candidate.id
  start(candidate.id, state, found)
end

-- The heads of all lanes that this worker serves, by priority.
local in_lanes = {} -- candidates by priority
local function lane_candidate(lane, name, lane_member)
  return { member = lane_member, seq = tonumber(string.sub(lane_member, 1, 16)), id = string.sub(lane_member, 18),
    lane = lane, name = name }
end
local function read_lane_head(lane, name, lanes)
  if capacities[name] == 0 then
    return
  end
  local heads = call('ZRANGE', P .. 'queue:line:' .. lane, 0, #run_ids - 1, 'WITHSCORES')
  for place = 1, #heads, 2 do
    local at = in_lanes[tonumber(heads[place + 1])]
    at[#at + 1] = lane_candidate(lane, name, heads[place])
  end
  if #heads == 0 then
    call('SREM', lanes, lane)
  end
end
local function read_lane_heads()
  for priority = 0, 9 do
    in_lanes[priority] = {}
  end
  for _, lane in ipairs(served_lanes()) do
    read_lane_head(unpack(lane))
  end
end

local function is_behind(priority, candidate)
  return bound and priority == bound[1] and candidate.seq > bound[2]
end

local function older(one, other)
  return one.seq < other.seq
end

-- The first waiting entries of a stream.
local function peek_stream(source, number)
  local found = call('XRANGE', source.stream, '(' .. last_delivered(source.stream), '+', 'COUNT', number)
  source.empty = #found == 0
  for place, entry in ipairs(found) do
    found[place] = { seq = tonumber(string.match(entry[1], '^%d+')), source = source }
  end
  return found
end

-- The oldest waiting tasks of a priority, as many as requested.
local function oldest(priority)
  local candidates, wanted = {}, #run_ids - #taken
  for _, source in ipairs(streams[priority]) do
    for _, candidate in ipairs(source.empty and {} or peek_stream(source, wanted)) do
      candidates[#candidates + 1] = candidate
    end
  end
  for _, candidate in ipairs(in_lanes[priority]) do
    candidates[#candidates + 1] = candidate
  end
  table.sort(candidates, older)
  local chosen = {}
  while #chosen < wanted and candidates[#chosen + 1] and not is_behind(priority, candidates[#chosen + 1]) do
    chosen[#chosen + 1] = candidates[#chosen + 1]
  end
  return chosen
end

-- Several sources at one priority: choose the oldest tasks, read those that are in streams, and process all by age. If some of
-- them cannot start, the next round finds newer ones.
local function merge(priority)
  local chosen, numbers, entries, used = oldest(priority), {}, {}, {}
  for _, candidate in ipairs(chosen) do
    local source = candidate.source
    if source then
      numbers[source] = (numbers[source] or 0) + 1
    end
  end
  for source, number in pairs(numbers) do
    entries[source], used[source] = take_delivery(source, number), 0
  end
  for _, candidate in ipairs(chosen) do
    local source = candidate.source
    if not source and capacities[candidate.name] ~= 0 then
      take_from_lane(candidate)
    elseif source and used[source] < #entries[source] then
      used[source] = used[source] + 1
      receive(source, entries[source][used[source]])
    end
  end
  return #chosen
end

local function has_streams(priority)
  for _, source in ipairs(streams[priority]) do
    if not source.empty then
      return true
    end
  end
  return false
end

for place = unusual and unusual.from or 1, unusual and #unusual.entries or 0 do
  receive(unusual.source, unusual.entries[place])
end
read_lane_heads()
for priority = 0, bound and bound[1] or 9 do
  while #taken < #run_ids and moved < MOST_MOVED do
    local before = #taken + moved
    local sources = streams[priority]
    if #sources == 1 and #in_lanes[priority] == 0 and not bound then
      if sources[1].empty then
        break
      end
      take_delivered(sources[1], math.min(#run_ids - #taken, MOST_MOVED))
    elseif merge(priority) == 0 then
      break
    end
    if moved > 0 or #in_lanes[priority] > 0 then
      read_lane_heads() -- taken, parked, and set-aside tasks have moved
    end
    if #taken + moved == before and (bound or not has_streams(priority)) then
      break
    end
  end
end
answer[1] = moved >= MOST_MOVED and #taken < #run_ids and 1 or 0

if #from_lanes > 0 then
  deliver(P .. 'queue:back', #from_lanes) -- every run is pending for its worker, wherever it was found
end
for name, number in pairs(started) do
  local limit = limits[name]
  if limit.interval then
    local full_at = math.max(limit.full_at, STEADY * 1000)
    call('HSET', P .. 'rates', name, whole(full_at + number * limit.interval))
  end
end
return finish_claim()
