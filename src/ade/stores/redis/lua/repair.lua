-- uses: base, fields, state, labels, streams, task_streams, dependencies, record_checks
-- flags: allow-oom
-- repair: check whether records and the keys around them agree, and with request.repair correct what does not.
-- request.ids: tasks to check. request.orphans: {kind (lib/record_checks.lua), key, argument, members of the key}, ...;
--   request.pending: {stream, pending entries}, ...: an entry that no longer exists must not be pending. request.remote:
--   partitions by id of tasks elsewhere that those of request.ids depend on, if known.
-- Returns {faults, gone, unresolved}: {invariant, sentence}, ...; ids of tasks that a key names but that have no record; ids of
--   tasks that cannot be repaired before request.remote is known. A task is repaired only from its record; nothing else is
--   invented.

-- Repairs restore lost keys from the records. Each one changes `state` and the keys around it.
local entered = false

local function ensure_group(stream)
  redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM') -- an error means that it exists
  delivered[stream] = nil
end

-- The declared dependencies of a task, and whether it runs even if they fail.
local function declared_needs(id)
  local ok, detail = pcall(cjson.decode, call('HGET', task_key(id), 'detail') or '')
  if not ok or type(detail) ~= 'table' then
    return {}, false
  end
  return type(detail.depends_on) == 'table' and detail.depends_on or {}, detail.after_failure == 'run'
end

local unresolved = {} -- tasks whose dependencies might be in other partitions, before request.remote is known

-- The state of a dependency: nil when it is met, otherwise the value for `task:needs`.
local function edge_state_for(on, known, tolerant)
  local on_state = readable_state(on)
  local at = on_state == nil and ((known and string.match(known, '@(%d+)$')) or (request.remote and request.remote[on]))
  if at then
    return known and string.find(known, '@', 1, true) and known or 'open@' .. at, false
  elseif on_state == nil then
    return known and not tolerant and 'broken' or nil, false -- lost, or completed so long ago that it was pruned
  elseif on_state and is_met(on_state, tolerant) then
    return nil, on_state
  end
  return on_state and FINAL[on_state[STATUS]] and 'broken' or 'open', on_state
end

-- Everything a task might wait for: known to either side, open, failed.
local function possible_needs(id, declared, tolerant)
  local by_rank, seen = { {}, {}, {} }, {}
  local function consider(on, known)
    if not seen[on] and on ~= id then
      seen[on] = true
      local word, on_state = edge_state_for(on, known, tolerant)
      if word then
        table.insert(by_rank[known and 1 or split_edge(word) == 'open' and 2 or 3], { on, word, on_state })
      else
        call('HDEL', P .. 'task:waiting:' .. on, id)
      end
    end
  end
  local needs = call('HGETALL', P .. 'task:needs:' .. id)
  for place = 1, #needs, 2 do
    consider(needs[place], needs[place + 1])
  end
  for _, on in ipairs(declared) do
    consider(on, call('HEXISTS', P .. 'task:waiting:' .. on, id) == 1 and 'open')
  end
  return by_rank
end

local function make_edge(id, state, need, tolerant)
  local on, word, on_state = need[1], need[2], need[3]
  local fate, remote = split_edge(word)
  call('HSET', P .. 'task:needs:' .. id, on, word)
  if remote ~= '' then
    call('HSET', P .. 'queue:unlinked', id, 0) -- the sweep registers it there
  else
    call('HSET', P .. 'task:waiting:' .. on, id, tolerant and 'tolerant' or 'strict')
  end
  if fate == 'broken' and WAITS[state[STATUS]] then
    call('SADD', P .. 'queue:broken', id)
  end
  if on_state and not on_state[AWAITED] then
    on_state[AWAITED] = true
    write_state(on, on_state)
  end
end

-- Rebuild both sides of all dependencies of a task. Its record contains their number, unless some have been met.
local function repair_edges(id, state)
  if FINAL[state[STATUS]] then
    delete_needs(id, state)
    return
  end
  local declared, tolerant = declared_needs(id)
  if PARTITIONS > 1 and #declared > 0 and not request.remote then
    unresolved[#unresolved + 1] = id
    return
  end
  local by_rank = possible_needs(id, declared, tolerant)
  local count_before, count_now = state[WAITING], 0
  call('DEL', P .. 'task:needs:' .. id)
  call('SREM', P .. 'queue:broken', id)
  for rank, needs in ipairs(by_rank) do
    for _, need in ipairs(needs) do
      if rank == 1 or count_now < count_before then
        count_now = count_now + 1
        make_edge(id, state, need, tolerant)
      end
    end
  end
  state[WAITING] = count_now
end

-- Remove a task from every place where it might still be.
local function withdraw(id, state)
  if state[STAGE] == 'ready' and state[WHERE] == 'stream' then
    remove_entry(stream_key(state[QUEUE], state[PRIORITY]), whole(state[SEQ]) .. '-0') -- a stream cannot take an old entry back
  end
  call('ZREM', P .. 'queue:line:' .. lane_of(state), member(id, state))
  call('ZREM', P .. 'queue:delayed', id)
  if state[KEY] then
    call('ZREM', parked_key(segment_of(state), parking_of(state)), member(id, state))
  end
  state[STAGE], state[WHERE] = false, false
end

local function repair_place(id, state)
  local stage = state[STAGE]
  if not CLAIMABLE[state[STATUS]] then
    leave(id, state)
    return
  end
  local was_ready = stage == 'ready' or stage == 'parked' -- a task that was due stays due, even if the clock was set back
  withdraw(id, state)
  enter(id, state, was_ready)
  entered = true
end

local function repair_lease(id, state)
  state[LEASE] = state[LEASE] or STEADY
  call('ZADD', P .. 'queue:leases', whole(state[LEASE]), id)
end

local function repair_delivery(id, state)
  local stream, entry
  if state[WHERE] and state[WHERE] ~= 'line' then
    stream, entry = delivery(state)
  end
  if not stream or not has_entry(stream, entry) then
    stream = P .. 'queue:back'
    entry = call('XADD', stream, '*', 'id', id, 'name', state[NAME])
    state[WHERE] = 'back:' .. entry
  end
  ensure_group(stream)
  -- A group reads its stream in order: the entry of a run, and all before it, were delivered.
  local last = last_delivered_to_group(stream)
  local mine = tonumber(string.match(entry, '^%d+'))
  if last < mine then
    call('XCLAIM', stream, GROUP, state[WORKER], 0, entry, 'FORCE', 'JUSTID', 'LASTID', entry)
    delivered[stream] = nil
  else
    call('XCLAIM', stream, GROUP, state[WORKER], 0, entry, 'FORCE', 'JUSTID')
  end
end

local function owner_of_key(digest)
  local known = call('GET', P .. 'task:key:' .. digest)
  local owner = known and cmsgpack.unpack(known)[1]
  local state = owner and readable_state(owner)
  return state and state[IDEM] == digest and owner
end

local function repair_indexes(id, state)
  local status, seq = state[STATUS], whole(state[SEQ])
  call('ZADD', P .. 'task:all', seq, id)
  if not COMMON[status] then
    call('ZADD', P .. 'task:index:state:' .. status, seq, id)
  end
  if FINAL[status] and state[FINISHED] then
    call('ZADD', P .. 'task:finished', whole(state[FINISHED]), id)
  end
  if state[EXPIRES] then
    call('ZADD', P .. 'task:results', whole(state[EXPIRES]), id)
  end
  if state[PARENT] then
    call('ZADD', P .. 'task:children:' .. state[PARENT], seq, id)
  end
  index_labels(id, state, labels_in(call('HGET', task_key(id), 'detail')))
  if state[IDEM] and not owner_of_key(state[IDEM]) then
    call('SET', P .. 'task:key:' .. state[IDEM], cmsgpack.pack({ id, state[DIGEST] }))
  end
end

local function repair_letter(id, state)
  local kept = call('HMGET', task_key(id), 'detail', 'outcome')
  state[LETTER] = call('XADD', DLQ, '*', 'id', id, 'name', state[NAME], 'queue', state[QUEUE], 'detail', kept[1] or '',
    'outcome', kept[2] or '', 'attempts', state[ATTEMPT], 'failed_at', whole(state[FINISHED] or NOW))
end

local function repair_history(_, state)
  local left = {}
  for tick_of_entry in string.gmatch(state[LOGGED], '%d+') do
    if is_logged(tonumber(tick_of_entry)) then
      left[#left + 1] = tick_of_entry
    end
  end
  state[LOGGED] = table.concat(left, ' ')
end

local REPAIRS = {
  waiting_counts_match_edges = repair_edges,
  dependencies_can_complete = repair_edges,
  ready_tasks_can_start = repair_place,
  every_task_has_its_place = repair_place,
  every_run_has_its_lease = repair_lease,
  every_run_has_its_delivery = repair_delivery,
  every_run_holds_its_key = function(id, state)
    call('SADD', P .. 'queue:key:' .. parking_of(state), id)
  end,
  indexes_match_records = repair_indexes,
  dead_letters_are_posted = repair_letter,
  the_log_has_what_records_name = repair_history,
}

local faults, gone = {}, {}

local function report(name, sentence)
  faults[#faults + 1] = { name, sentence }
end

local function look_at(id)
  local state = readable_state(id)
  if state == false then
    report('every_record_is_whole', 'task ' .. id .. ' has a state that cannot be read')
  end
  if not state then
    return
  end
  local repaired = false
  for _, each in ipairs(CHECKS) do
    local name, fault_of = each[1], each[2]
    local fault = fault_of(id, state)
    if fault then
      report(name, 'task ' .. id .. ' ' .. fault)
      if request.repair and REPAIRS[name] then
        REPAIRS[name](id, state)
        repaired = true
      end
    end
  end
  if repaired then
    write_state(id, state)
  end
end

for _, id in ipairs(request.ids or {}) do
  look_at(id)
end
for _, orphan in ipairs(request.orphans or {}) do
  local kind, key, argument = orphan[1], orphan[2], orphan[3]
  for _, named in ipairs(orphan[4]) do
    local fault, gone_id = orphan_fault(kind, key, argument, named)
    if fault then
      report('every_reference_is_valid', fault)
      gone[#gone + 1] = gone_id
      if request.repair then
        REMOVE[KINDS[kind][1]](key, named)
      end
    end
  end
end
for _, waiting in ipairs(request.pending or {}) do
  local stream = waiting[1]
  for _, entry in ipairs(waiting[2]) do
    if not has_entry(stream, entry) and pending_for(stream, entry) then
      report('every_reference_is_valid', 'entry ' .. entry .. ' is pending in ' .. stream .. ', but does not exist')
      if request.repair then
        call('XACK', stream, GROUP, entry)
      end
    end
  end
end
flush_streams()
if entered then
  notify('work')
end
return { faults, gone, unresolved }
