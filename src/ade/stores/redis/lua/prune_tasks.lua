-- uses: base, fields, state, labels, counters, request_dedup
-- flags: allow-oom
-- prune_tasks: delete final tasks that no other task depends on, with everything that belongs to them. request.ids,
--   request.token. Returns the deleted ids.

local known = known_answer()
if known then
  return known
end
local gone, pruned_of = {}, {}

local function remove(id, state)
  if state[IDEM] then
    call('DEL', P .. 'task:key:' .. state[IDEM])
  end
  if state[PARENT] then
    call('ZREM', P .. 'task:children:' .. state[PARENT], id)
  end
  remove_labels(id, state, labels_in(call('HGET', task_key(id), 'detail')))
  if state[LETTER] then
    call('XDEL', DLQ, state[LETTER])
  end
  if not COMMON[state[STATUS]] then
    call('ZREM', P .. 'task:index:state:' .. state[STATUS], id)
  end
  call('ZREM', P .. 'task:results', id)
  call('SREM', P .. 'quarantined', id)
  call('DEL', task_key(id), task_key(id) .. ':output', P .. 'task:needs:' .. id, P .. 'quarantine:' .. id)
  count(state, -1)
  pruned_of[state[QUEUE]] = true
  gone[#gone + 1] = id
end

for _, id in ipairs(request.ids) do
  local state = read_state(id)
  if state and FINAL[state[STATUS]] and call('EXISTS', P .. 'task:waiting:' .. id) == 0 then
    remove(id, state)
  end
end
in_portions('ZREM', P .. 'task:all', gone)
in_portions('ZREM', P .. 'task:finished', gone)
flush_counts()

-- A queue without tasks leaves only empty streams, which no sweep would find again.
for _, lane in ipairs(call('HKEYS', P .. 'tally')) do
  pruned_of[string.match(lane, '^[^:]*')] = nil
end
for queue in pairs(pruned_of) do
  for priority = 0, 9 do
    local stream = STREAM .. queue .. ':' .. priority
    if redis.pcall('XLEN', stream) == 0 then
      call('DEL', stream)
    end
  end
end
return keep_answer(gone)
