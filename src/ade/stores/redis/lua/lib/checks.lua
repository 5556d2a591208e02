-- What must be elsewhere because the record of a task says so. Every check answers nil, or in words what is not so.
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

-- The newest entry a group was given, as a number; nil without the group.
local delivered = {}
local function last_delivered_to_group(stream)
  if delivered[stream] == nil then
    delivered[stream] = false
    local groups = redis.pcall('XINFO', 'GROUPS', stream)
    for _, group in ipairs(groups.err and {} or groups) do
      local facts = {}
      for place = 1, #group, 2 do
        facts[group[place]] = group[place + 1]
      end
      if facts['name'] == GROUP then
        delivered[stream] = tonumber(string.match(facts['last-delivered-id'], '^%d+'))
      end
    end
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

-- Whoever waits for another task waits for one that may still complete, or knows that it never will.
local function edge_fault(id, on, word)
  local fate, afar = kind_and_place(word)
  if afar ~= '' then
    return nil -- the other side is in another partition
  end
  local on_state = readable_state(on)
  local tolerance = call('HGET', P .. 'task:waiting:' .. on, id)
  if on_state == nil then
    return fate ~= 'broken' and 'waits for ' .. on .. ', which is gone'
  elseif on_state == false then
    return nil
  elseif on == id or on_state[STATUS] == 'completed' or (FINAL[on_state[STATUS]] or false) ~= (fate == 'broken') then
    return 'waits for ' .. on .. ', which is ' .. on_state[STATUS]
  elseif fate == 'broken' and tolerance == 'tolerant' then
    return 'waits for ' .. on .. ' in vain, but would run without it'
  elseif not tolerance or not on_state[AWAITED] then
    return 'waits for ' .. on .. ', which does not know'
  end
end

check('nobody_waits_in_vain', function(id, state)
  local needs = call('HGETALL', P .. 'task:needs:' .. id)
  local in_vain = false
  for place = 1, #needs, 2 do
    in_vain = in_vain or kind_and_place(needs[place + 1]) == 'broken'
    local fault = edge_fault(id, needs[place], needs[place + 1])
    if fault then
      return fault
    end
  end
  if in_vain and CLAIMABLE[state[STATUS]] and call('SISMEMBER', P .. 'queue:broken', id) == 0 then
    return 'waits in vain, and no sweep will decide on it'
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
    local stands = has_score(P .. 'queue:line:' .. lane, member(id, state), state[PRIORITY])
      and call('SISMEMBER', lanes, lane) == 1
    return not stands and 'is ready, but does not stand in its line'
  elseif state[WHERE] ~= 'stream' or state[NEEDS] then
    return 'is ready, but stands ' .. (state[NEEDS] and 'where anybody takes it' or 'nowhere')
  end
  local stream = stream_key(state[QUEUE], state[PRIORITY])
  if not has_entry(stream, whole(state[SEQ]) .. '-0') then
    return 'is ready, but has no entry in its stream'
  elseif state[SEQ] <= (last_delivered_to_group(stream) or 0) then
    return 'is ready, but the group was given its entry already'
  end
end

local function parked_fault(id, state)
  local parking = state[KEY] and parking_of(state)
  local stands = parking and has_score(parked_key(crowd_of(state), parking), member(id, state), state[PRIORITY])
    and call('SISMEMBER', P .. 'queue:parking:' .. parking, crowd_of(state)) == 1
    and call('SISMEMBER', P .. 'queue:parkings', parking) == 1
  return not stands and 'is parked, but nobody would find it'
end

check('every_task_has_its_place', function(id, state)
  local stage = state[STAGE]
  if not CLAIMABLE[state[STATUS]] then
    return stage and 'is ' .. state[STATUS] .. ', but stands as ' .. stage
  elseif state[DEADLINE] and not has_score(P .. 'queue:deadlines', id, state[DEADLINE]) then
    return 'has a deadline that nobody watches'
  elseif stage == 'ready' then
    return ready_fault(id, state)
  elseif stage == 'parked' then
    return parked_fault(id, state)
  elseif stage == 'delayed' then
    return not has_score(P .. 'queue:delayed', id, state[RUN_AFTER]) and 'is delayed, but nobody would wake it'
  end
  return stage ~= 'blocked' and 'is ' .. state[STATUS] .. ', but stands nowhere'
end)

check('every_run_has_its_lease', function(id, state)
  if state[STATUS] == 'running' and not (state[LEASE] and has_score(P .. 'queue:leases', id, state[LEASE])) then
    return 'is running, but its lease is not watched'
  end
end)

check('every_run_has_its_delivery', function(_, state)
  if state[STATUS] ~= 'running' then
    return
  elseif not state[WHERE] or state[WHERE] == 'line' then
    return 'is running, but was delivered by nothing'
  end
  local stream, entry = delivery(state)
  if not has_entry(stream, entry) then
    return 'is running, but the entry that delivered it is gone'
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

check('indexes_match_records', function(id, state)
  local status = state[STATUS]
  local absent = (not has_score(P .. 'task:all', id, state[SEQ]) and 'all tasks')
    or (not COMMON[status] and not has_score(P .. 'task:index:state:' .. status, id, state[SEQ]) and status .. ' tasks')
    or (FINAL[status] and state[FINISHED] and not has_score(P .. 'task:finished', id, state[FINISHED]) and 'ended tasks')
    or (state[EXPIRES] and not has_score(P .. 'task:results', id, state[EXPIRES]) and 'results that expire')
    or (state[PARENT] and not has_score(P .. 'task:children:' .. state[PARENT], id, state[SEQ]) and 'children')
    or (state[IDEM] and not key_is_known(id, state) and 'idempotency keys')
  return absent and 'is missing in the index of ' .. absent
end)

check('dead_letters_are_posted', function(_, state)
  local is_letter = state[STATUS] == 'failed' and not state[DISCARDED]
  if is_letter and not (state[LETTER] and has_entry(DLQ, state[LETTER])) then
    return 'is a dead letter, but not in the stream of those'
  end
end)

local oldest_entry -- of the log; nothing that a record names is ever trimmed, so none of those is older

-- A task that came from another partition has left its first entries there.
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
    return 'is told of by an entry of the log that is gone'
  end
end)
