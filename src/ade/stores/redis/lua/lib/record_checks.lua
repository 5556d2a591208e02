-- Checks of records against the keys around them. Each returns nil, or a description of the fault.
local KNOWN_STATUS = { draft = true, submitted = true, reviewing = true, approved = true, pending = true, running = true,
  stalled = true, completed = true, failed = true, rejected = true, cancelled = true }
local KNOWN_STAGE = { ready = true, delayed = true, blocked = true, parked = true }

-- The state of a task: nil when there is no record, false when it cannot be read.
local function readable_state(id)
  local ok, state = pcall(read_state, id)
  if not ok then
    return false
  elseif not state then
    return nil
  end
  local is_whole = type(state) == 'table' and type(state[STATUS]) == 'string' and type(state[QUEUE]) == 'string'
    and type(state[NAME]) == 'string' and type(state[PRIORITY]) == 'number' and type(state[SEQ]) == 'number'
    and type(state[WAITING]) == 'number' and type(state[LOGGED]) == 'string'
  return is_whole and state
end

local function has_score(key, of, score)
  local found = call('ZSCORE', key, of)
  return found and tonumber(found) == score
end

local function has_entry(stream, entry)
  return #call('XRANGE', stream, entry, entry) > 0
end

-- The newest entry delivered to the group, as a number; nil without the group.
local delivered = {}
local function last_delivered_to_group(stream)
  if delivered[stream] == nil then
    local group = group_of(stream)
    delivered[stream] = group and tonumber(string.match(group['last-delivered-id'], '^%d+')) or false
  end
  return delivered[stream] or nil
end

local function pending_for(stream, entry)
  local pending = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
  return not pending.err and pending[1] and pending[1][2]
end

local CHECKS = {}

local function check(name, fault_of)
  CHECKS[#CHECKS + 1] = { name, fault_of }
end

check('statuses_are_known', function(_, state)
  if not KNOWN_STATUS[state[STATUS]] or (state[STAGE] and not KNOWN_STAGE[state[STAGE]]) then
    return 'has status ' .. state[STATUS] .. ' and stage ' .. tostring(state[STAGE])
  end
end)

check('final_tasks_have_an_end', function(_, state)
  if (FINAL[state[STATUS]] or false) ~= (state[FINISHED] and true) then
    return 'is ' .. state[STATUS] .. ' with finished_at ' .. tostring(state[FINISHED])
  end
end)

check('waiting_counts_match_edges', function(id, state)
  local edges = call('HLEN', P .. 'task:needs:' .. id)
  if edges ~= state[WAITING] or (edges > 0 and FINAL[state[STATUS]]) then
    return 'waits for ' .. state[WAITING] .. ', edges are ' .. edges
  end
end)

-- A task waits only for tasks that can still complete, or its dependency is marked as broken.
local function edge_fault(id, on, word)
  local fate, remote = split_edge(word)
  if remote ~= '' then
    return nil -- the other side is in another partition
  end
  local on_state = readable_state(on)
  local tolerance = call('HGET', P .. 'task:waiting:' .. on, id)
  if on_state == nil then
    return fate ~= 'broken' and 'waits for ' .. on .. ', which no longer exists'
  elseif on_state == false then
    return nil
  elseif on == id or on_state[STATUS] == 'completed' or (FINAL[on_state[STATUS]] or false) ~= (fate == 'broken') then
    return 'waits for ' .. on .. ', which is ' .. on_state[STATUS]
  elseif fate == 'broken' and tolerance == 'tolerant' then
    return 'waits for ' .. on .. ', which is ' .. on_state[STATUS] .. ', but should run without it'
  elseif not tolerance or not on_state[AWAITED] then
    return 'waits for ' .. on .. ', where it is not registered'
  end
end

check('dependencies_can_complete', function(id, state)
  local needs = call('HGETALL', P .. 'task:needs:' .. id)
  local is_broken = false
  for place = 1, #needs, 2 do
    is_broken = is_broken or split_edge(needs[place + 1]) == 'broken'
    local fault = edge_fault(id, needs[place], needs[place + 1])
    if fault then
      return fault
    end
  end
  if is_broken and WAITS[state[STATUS]] and call('SISMEMBER', P .. 'queue:broken', id) == 0 then
    return 'has a broken dependency that no sweep would find'
  end
end)

check('ready_tasks_can_start', function(_, state)
  if state[STAGE] and (state[STAGE] == 'blocked') ~= (state[WAITING] > 0) then
    return 'is ' .. state[STAGE] .. ' and waits for ' .. state[WAITING]
  end
end)

local function ready_fault(id, state)
  local lane, lanes = lane_of(state)
  if state[WHERE] == 'line' then
    local is_listed = has_score(P .. 'queue:line:' .. lane, member(id, state), state[PRIORITY])
      and call('SISMEMBER', lanes, lane) == 1
    return not is_listed and 'is ready, but not in its lane'
  elseif state[WHERE] ~= 'stream' or state[NEEDS] then
    return 'is ready, but is ' .. (state[NEEDS] and 'in a stream that every worker reads' or 'in no stream or lane')
  end
  local stream = stream_key(state[QUEUE], state[PRIORITY])
  if not has_entry(stream, whole(state[SEQ]) .. '-0') then
    return 'is ready, but has no entry in its stream'
  elseif state[SEQ] <= (last_delivered_to_group(stream) or 0) then
    return 'is ready, but its entry was already delivered'
  end
end

local function parked_fault(id, state)
  local parking = state[KEY] and parking_of(state)
  local is_listed = parking and has_score(parked_key(segment_of(state), parking), member(id, state), state[PRIORITY])
    and call('SISMEMBER', P .. 'queue:parking:' .. parking, segment_of(state)) == 1
    and call('SISMEMBER', P .. 'queue:parkings', parking) == 1
  return not is_listed and 'is parked, but missing in its index'
end

check('every_task_has_its_place', function(id, state)
  local stage = state[STAGE]
  if not CLAIMABLE[state[STATUS]] then
    return stage and 'is ' .. state[STATUS] .. ', but has stage ' .. stage
  elseif state[DEADLINE] and not has_score(P .. 'queue:deadlines', id, state[DEADLINE]) then
    return 'has a deadline that is missing in its index'
  elseif stage == 'ready' then
    return ready_fault(id, state)
  elseif stage == 'parked' then
    return parked_fault(id, state)
  elseif stage == 'delayed' then
    return not has_score(P .. 'queue:delayed', id, state[RUN_AFTER]) and 'is delayed, but missing in its index'
  end
  return stage ~= 'blocked' and 'is ' .. state[STATUS] .. ', but has no stage'
end)

check('every_run_has_its_lease', function(id, state)
  if state[STATUS] == 'running' and not (state[LEASE] and has_score(P .. 'queue:leases', id, state[LEASE])) then
    return 'is running, but its lease is missing in its index'
  end
end)

check('every_run_has_its_delivery', function(_, state)
  if state[STATUS] ~= 'running' then
    return
  elseif not state[WHERE] or state[WHERE] == 'line' then
    return 'is running, but has no delivered entry'
  end
  local stream, entry = delivery(state)
  if not has_entry(stream, entry) then
    return 'is running, but its delivered entry no longer exists'
  elseif pending_for(stream, entry) ~= state[WORKER] then
    return 'is running, but its entry is not pending for its worker'
  end
end)

check('every_run_holds_its_key', function(id, state)
  if state[STATUS] == 'running' and state[KEY] and call('SISMEMBER', P .. 'queue:key:' .. parking_of(state), id) == 0 then
    return 'is running, but does not hold its concurrency key'
  end
end)

local function key_is_known(id, state)
  local known = call('GET', P .. 'task:key:' .. state[IDEM])
  return known and cmsgpack.unpack(known)[1] == id
end

local function unlisted_label(id, state)
  for _, label in ipairs(labels_in(call('HGET', task_key(id), 'detail'))) do
    if not has_score(label_key(label), id, state[SEQ]) then
      return label
    end
  end
end

check('indexes_match_records', function(id, state)
  local status = state[STATUS]
  local absent = (not has_score(P .. 'task:all', id, state[SEQ]) and 'all tasks')
    or (not COMMON[status] and not has_score(P .. 'task:index:state:' .. status, id, state[SEQ]) and status .. ' tasks')
    or (FINAL[status] and state[FINISHED] and not has_score(P .. 'task:finished', id, state[FINISHED]) and 'ended tasks')
    or (state[EXPIRES] and not has_score(P .. 'task:results', id, state[EXPIRES]) and 'results that expire')
    or (state[PARENT] and not has_score(P .. 'task:children:' .. state[PARENT], id, state[SEQ]) and 'children')
    or (state[TEAM] and not has_score(P .. 'task:index:team:' .. state[TEAM], id, state[SEQ]) and 'teams')
    or (state[TICKET] and not has_score(P .. 'task:index:ticket:' .. state[TICKET], id, state[SEQ]) and 'tickets')
    or (state[IDEM] and not key_is_known(id, state) and 'idempotency keys')
    or unlisted_label(id, state)
  return absent and 'is missing in the index of ' .. absent
end)

check('dead_letters_are_posted', function(_, state)
  local is_dead_letter = state[STATUS] == 'failed' and not state[DISCARDED]
  if is_dead_letter and not (state[LETTER] and has_entry(DLQ, state[LETTER])) then
    return 'is a dead letter, but not in the dead-letter stream'
  end
end)

local oldest_entry -- of the log; entries that a record names are never trimmed, so none of those is older

-- The first entries of a task that came from another partition are there.
local function is_logged(tick_of_entry)
  if not oldest_entry then
    local first = call('XRANGE', P .. 'events', '-', '+', 'COUNT', 1)[1]
    oldest_entry = first and tonumber(string.match(first[1], '^%d+')) or math.huge
  end
  return tick_of_entry % PARTITIONS ~= PARTITION or tick_of_entry >= oldest_entry
end

check('the_log_has_what_records_name', function(_, state)
  local first, last = string.match(state[LOGGED], '^%d+'), string.match(state[LOGGED], '%d+$')
  if first and not (is_logged(tonumber(first)) and is_logged(tonumber(last))) then
    return 'names an entry of the log that no longer exists'
  end
end)

-- Checks of keys against the records they name. For each kind of key: its type, and whether a task belongs in it.
local function has_id(stream, entry)
  local found = call('XRANGE', stream, entry, entry)[1]
  local fields = found and found[2] or {}
  for place = 1, #fields, 2 do
    if fields[place] == 'id' then
      return fields[place + 1]
    end
  end
  return found and ''
end

local function is_labeled(id, label)
  return has_label(call('HGET', task_key(id), 'detail'), label)
end

local function id_of_member(named)
  return string.sub(named, 18)
end

-- Each function returns whether the task (its state, its id) belongs where `named` with `value` (a score or a field) was found.
local KINDS = {
  all = { 'zset', function(state, _, seq) return seq == state[SEQ] end },
  finished = { 'zset', function(state, _, at) return FINAL[state[STATUS]] and at == state[FINISHED] end },
  results = { 'zset', function(state, _, at) return at == state[EXPIRES] end },
  state = { 'zset', function(state, _, seq, status)
    return status == state[STATUS] and not COMMON[status] and seq == state[SEQ]
  end },
  team = { 'zset', function(state, _, _, team) return team == state[TEAM] end },
  ticket = { 'zset', function(state, _, _, ticket) return ticket == state[TICKET] end },
  author = { 'zset', function(_, id, _, author) return is_labeled(id, 'author:' .. author) end },
  tag = { 'zset', function(_, id, _, tag) return is_labeled(id, 'tag:' .. tag) end },
  resource = { 'zset', function(_, id, _, resource) return is_labeled(id, 'resource:' .. resource) end },
  children = { 'zset', function(state, _, _, parent) return parent == state[PARENT] end },
  leases = { 'zset', function(state, _, at) return state[STATUS] == 'running' and at == state[LEASE] end },
  deadlines = { 'zset', function(state, _, at) return CLAIMABLE[state[STATUS]] and at == state[DEADLINE] end },
  delayed = { 'zset', function(state, _, at) return state[STAGE] == 'delayed' and at == state[RUN_AFTER] end },
  line = { 'zset', function(state, id, priority, lane, named)
    return state[STAGE] == 'ready' and state[WHERE] == 'line' and lane == lane_of(state)
      and named == member(id, state) and priority == state[PRIORITY]
  end, id_of_member },
  parked = { 'zset', function(state, id, _, parking, named)
    return state[STAGE] == 'parked' and state[KEY] and parking == segment_of(state) .. ':' .. parking_of(state)
      and named == member(id, state)
  end, id_of_member },
  holders = { 'set', function(state, _, _, parking)
    return state[STATUS] == 'running' and state[KEY] and parking == parking_of(state)
  end },
  broken = { 'set', function(_, id) return has_broken_needs(id) end },
  waiting = { 'hash', function(_, id, _, on) return call('HEXISTS', P .. 'task:needs:' .. id, on) == 1 end },
  needs = { 'hash', function() return true end },
  idem = { 'string', function(state, _, _, digest) return digest == state[IDEM] end },
  stream = { 'stream', function(state, _, _, _, entry, key)
    return state[WHERE] == 'stream' and entry == whole(state[SEQ]) .. '-0' and key == stream_key(state[QUEUE], state[PRIORITY])
      and (state[STAGE] == 'ready' or state[STATUS] == 'running')
  end },
  back = { 'stream', function(state, _, _, _, entry)
    return state[STATUS] == 'running' and state[WHERE] == 'back:' .. entry
  end },
  letters = { 'stream', function(state, _, _, _, entry) return state[LETTER] == entry end },
}

-- The current value of a member, and the id of the task it names; nil when the member no longer exists.
local LOOK = {
  zset = function(key, named)
    local score = call('ZSCORE', key, named)
    return score and tonumber(score), named
  end,
  set = function(key, named)
    return call('SISMEMBER', key, named) == 1, named
  end,
  hash = function(key, named)
    return call('HGET', key, named), named
  end,
  stream = function(key, entry)
    local id = has_id(key, entry)
    return id and true, id
  end,
  string = function(key)
    local known = call('GET', key)
    return known and true, known and cmsgpack.unpack(known)[1]
  end,
}

local REMOVE = {
  zset = function(key, named) call('ZREM', key, named) end,
  set = function(key, named) call('SREM', key, named) end,
  hash = function(key, named) call('HDEL', key, named) end,
  stream = function(key, entry) remove_entry(key, entry) end,
  string = function(key) call('DEL', key) end,
}

-- Why a task does not belong where it is named, or nil. The second result is the id of a task that does not exist.
local function orphan_fault(kind, key, argument, named)
  local kind_type, belongs, id_in = unpack(KINDS[kind])
  local value, id = LOOK[kind_type](key, named)
  if not value or (kind == 'waiting' and string.find(value, '@', 1, true)) then
    return nil -- the member no longer exists, or its task is in another partition
  end
  id = id_in and id_in(named) or id
  if kind == 'needs' then
    id = argument -- a task that does not exist waits for nothing
  end
  local state = readable_state(id)
  if state == nil then
    return key .. ' names ' .. id .. ', which does not exist', id
  elseif state and not belongs(state, id, value, argument, named, key) then
    return key .. ' names ' .. id .. ', which is ' .. state[STATUS] .. ' and does not belong there'
  end
end
