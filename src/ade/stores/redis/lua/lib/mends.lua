-- How what was lost is put back from the records, which are the truth. Each mend changes `state` and the keys around it.
local entered = false

local function ensure_group(stream)
  redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM') -- an error says that there is one
  delivered[stream] = nil
end

-- What a task said that it depends on, and whether it runs even if those fail.
local function told_needs(id)
  local ok, detail = pcall(cjson.decode, call('HGET', task_key(id), 'detail') or '')
  if not ok or type(detail) ~= 'table' then
    return {}, false
  end
  return type(detail.depends_on) == 'table' and detail.depends_on or {}, detail.after_failure == 'run'
end

local unresolved = {} -- tasks that may wait for tasks of other partitions, and nobody has said for which

-- How a task that was told to wait for another should do so: nil when that is met, else the word for the edge.
local function word_for(on, known, tolerant)
  local on_state = readable_state(on)
  local at = on_state == nil and ((known and string.match(known, '@(%d+)$')) or (request.afar and request.afar[on]))
  if at then
    return known and string.find(known, '@', 1, true) and known or 'open@' .. at, false
  elseif on_state == nil then
    return known and not tolerant and 'broken' or nil, false -- gone, or it completed so long ago that it was removed
  elseif on_state and is_met(on_state, tolerant) then
    return nil, on_state
  end
  return on_state and FINAL[on_state[STATUS]] and 'broken' or 'open', on_state
end

-- Everything a task may wait for: what either side of an edge knows of, what is open, what failed.
local function possible_needs(id, told, tolerant)
  local by_rank, seen = { {}, {}, {} }, {}
  local function consider(on, known)
    if not seen[on] and on ~= id then
      seen[on] = true
      local word, on_state = word_for(on, known, tolerant)
      if word then
        table.insert(by_rank[known and 1 or kind_and_place(word) == 'open' and 2 or 3], { on, word, on_state })
      else
        call('HDEL', P .. 'task:waiting:' .. on, id)
      end
    end
  end
  local needs = call('HGETALL', P .. 'task:needs:' .. id)
  for place = 1, #needs, 2 do
    consider(needs[place], needs[place + 1])
  end
  for _, on in ipairs(told) do
    consider(on, call('HEXISTS', P .. 'task:waiting:' .. on, id) == 1 and 'open')
  end
  return by_rank
end

local function make_edge(id, state, need, tolerant)
  local on, word, on_state = need[1], need[2], need[3]
  local fate, afar = kind_and_place(word)
  call('HSET', P .. 'task:needs:' .. id, on, word)
  if afar ~= '' then
    call('HSET', P .. 'queue:unlinked', id, 0) -- the sweep asks there how things stand
  else
    call('HSET', P .. 'task:waiting:' .. on, id, tolerant and 'tolerant' or 'strict')
  end
  if fate == 'broken' and CLAIMABLE[state[STATUS]] then
    call('SADD', P .. 'queue:broken', id)
  end
  if on_state and not on_state[AWAITED] then
    on_state[AWAITED] = true
    write_state(on, on_state)
  end
end

-- Make both sides of all edges of a task anew. How many there are is what its record says, unless some have been met.
local function mend_edges(id, state)
  if FINAL[state[STATUS]] then
    forget_needs(id, state)
    return
  end
  local told, tolerant = told_needs(id)
  if PARTITIONS > 1 and #told > 0 and not request.afar then
    unresolved[#unresolved + 1] = id
    return
  end
  local by_rank = possible_needs(id, told, tolerant)
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

-- Take a task out of wherever it may still stand by half.
local function withdraw(id, state)
  if state[STAGE] == 'ready' and state[WHERE] == 'stream' then
    strike(stream_key(state[QUEUE], state[PRIORITY]), whole(state[SEQ]) .. '-0') -- a stream takes no old entry back
  end
  call('ZREM', P .. 'queue:line:' .. lane_of(state), member(id, state))
  call('ZREM', P .. 'queue:delayed', id)
  if state[KEY] then
    call('ZREM', parked_key(crowd_of(state), parking_of(state)), member(id, state))
  end
  state[STAGE], state[WHERE] = false, false
end

local function mend_place(id, state)
  local stage = state[STAGE]
  if not CLAIMABLE[state[STATUS]] then
    leave(id, state)
    return
  end
  local was_ready = stage == 'ready' or stage == 'parked' -- once due it stays so, whatever the clock says
  withdraw(id, state)
  enter(id, state, was_ready)
  entered = true
end

local function mend_lease(id, state)
  state[LEASE] = state[LEASE] or STEADY
  call('ZADD', P .. 'queue:leases', whole(state[LEASE]), id)
end

local function mend_delivery(id, state)
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
  -- A group goes through its stream in order: what a run was delivered by, and all before it, it was given already.
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

local function mend_indexes(id, state)
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
  if state[IDEM] and not owner_of_key(state[IDEM]) then
    call('SET', P .. 'task:key:' .. state[IDEM], cmsgpack.pack({ id, state[DIGEST] }))
  end
end

local function mend_letter(id, state)
  local kept = call('HMGET', task_key(id), 'detail', 'outcome')
  state[LETTER] = call('XADD', DLQ, '*', 'id', id, 'name', state[NAME], 'queue', state[QUEUE], 'detail', kept[1] or '',
    'outcome', kept[2] or '', 'attempts', state[ATTEMPT], 'failed_at', whole(state[FINISHED] or NOW))
end

local function mend_history(_, state)
  local left = {}
  for tick_of_entry in string.gmatch(state[LOGGED], '%d+') do
    if is_logged(tonumber(tick_of_entry)) then
      left[#left + 1] = tick_of_entry
    end
  end
  state[LOGGED] = table.concat(left, ' ')
end

local MENDS = {
  waiting_counts_match_edges = mend_edges,
  nobody_waits_in_vain = mend_edges,
  ready_tasks_can_start = mend_place,
  every_task_has_its_place = mend_place,
  every_run_has_its_lease = mend_lease,
  every_run_has_its_delivery = mend_delivery,
  every_run_holds_its_key = function(id, state)
    call('SADD', P .. 'queue:key:' .. parking_of(state), id)
  end,
  indexes_match_records = mend_indexes,
  dead_letters_are_posted = mend_letter,
  the_log_has_what_records_name = mend_history,
}
