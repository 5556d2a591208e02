-- uses: base, types, fields, state, labels, log, counters, streams, task_streams, dependencies
-- add: store new tasks, each group completely or not at all.
-- request.groups: arrays of tasks, each {id, state, detail, depends_on, tolerant, events, remote, age, always_fits, labels}.
--   `remote` lists dependencies in other partitions as {id, partition}, ...; `age` is false, or the tick that keeps the order of a
--   call over several partitions; with `always_fits` no admission limit applies; `labels` (lib/labels.lua) is false, or a list;
--   `state` has the layout of lib/fields.lua, without the fields that the store decides (seq, place, log).
-- request.try: only return what would happen. request.usual_depth: admission limit of queues that have none of their own, or
--   false.
-- Returns for each group {'stored', task ids or records of existing tasks} or {'refused', reason, ...}; nothing of a refused
--   group is written. After the reason 'known', repeat the call with the id of the existing task in the place of the one that was
--   named. A repeated call finds its own tasks.

local function limit_of(queue)
  local known = call('HGET', P .. 'queues', queue)
  local limit = known and cmsgpack.unpack(known)[2]
  return limit or request.usual_depth
end

local capacities = {}
local function capacity_of(queue)
  if capacities[queue] == nil then
    local limit = limit_of(queue)
    capacities[queue] = limit and limit - tonumber(call('HGET', P .. 'queue:depth', queue) or '0') or false
  end
  return capacities[queue]
end

-- Which tasks of a group already exist: id -> id of the existing task. Idempotency keys within the group count too.
local function earlier_of(group)
  local earlier, within = {}, {}
  for _, task in ipairs(group) do
    local id, state = task[1], task[2]
    if call('EXISTS', task_key(id)) == 1 then
      earlier[id] = id
    elseif state[IDEM] then
      local known = call('GET', P .. 'task:key:' .. state[IDEM])
      local first = known and cmsgpack.unpack(known)
      if not first or call('EXISTS', task_key(first[1])) == 0 then -- a key can outlive a lost record
        first = within[state[IDEM]]
      end
      if first and first[2] ~= state[DIGEST] then
        return nil, { 'refused', 'conflict', id, first[1] }
      elseif first and first[1] ~= id then
        earlier[id] = first[1]
      else
        within[state[IDEM]] = { id, state[DIGEST] }
      end
    end
  end
  return earlier
end

-- The new tasks, in order. If one depends on a task that already exists under another id, the caller must use that id: the
-- detail contains it too, and scripts do not read details.
local function fresh_of(group, earlier)
  local fresh, seen = {}, {}
  for _, task in ipairs(group) do
    if not earlier[task[1]] and not seen[task[1]] then
      seen[task[1]] = task
      local needs, known = {}, {}
      for _, on in ipairs(task[4]) do
        if earlier[on] and earlier[on] ~= on then
          return nil, { 'refused', 'known', on, earlier[on] }
        elseif not known[on] then
          known[on] = true
          needs[#needs + 1] = on
        end
      end
      fresh[#fresh + 1] = { id = task[1], state = task[2], detail = task[3], needs = needs, tolerant = task[5],
        events = task[6], remote = task[7] or {}, age = task[8], always_fits = task[9],
        labels = task[10] or {} }
    end
  end
  return fresh, seen
end

local function full_queue(fresh)
  local wanted, taken = {}, {} -- tasks that must fit, and tasks that use capacity
  for _, task in ipairs(fresh) do
    local queue = task.state[QUEUE]
    taken[queue] = (taken[queue] or 0) + 1
    if not task.always_fits then
      wanted[queue] = (wanted[queue] or 0) + 1
    end
  end
  for queue, count_wanted in pairs(wanted) do
    local capacity = capacity_of(queue)
    if capacity and count_wanted > capacity then
      return { 'refused', 'full', queue, count_wanted, capacity, limit_of(queue) }
    end
  end
  for queue, count_taken in pairs(taken) do
    local capacity = capacity_of(queue)
    capacities[queue] = capacity and capacity - count_taken
  end
end

local function unknown_need(fresh, seen)
  for _, task in ipairs(fresh) do
    for _, on in ipairs(task.needs) do
      if not seen[on] and call('EXISTS', task_key(on)) == 0 then
        return { 'refused', 'unknown_dependency', on }
      end
    end
  end
end

local added, newest = 0, BASE - PARTITIONS
local levels = {}

local function enter_stream(id, state)
  local priority = state[PRIORITY]
  local level = priority .. ':' .. state[QUEUE]
  state[STAGE], state[WHERE] = 'ready', 'stream'
  call('XADD', stream_key(state[QUEUE], priority), whole(state[SEQ]) .. '-0', 'id', id, 'name', state[NAME])
  levels[level] = (levels[level] or 0) + 1
end

local all_tasks = {} -- for the index of all tasks: seq, id, seq, id, ...

local function store(task)
  local id, state = task.id, task.state
  added = added + 1
  newest = math.max(newest + PARTITIONS, task.age or 0)
  state[SEQ] = newest
  state[LOGGED] = ''
  append_task_events(state, task.events)
  if CLAIMABLE[state[STATUS]] then
    if state[WAITING] == 0 and state[RUN_AFTER] <= NOW and not state[NEEDS] then
      enter_stream(id, state)
      if state[DEADLINE] then
        call('ZADD', P .. 'queue:deadlines', whole(state[DEADLINE]), id)
      end
    else
      enter(id, state)
    end
  end
  if not COMMON[state[STATUS]] then
    call('ZADD', P .. 'task:index:state:' .. state[STATUS], whole(state[SEQ]), id)
  end
  if state[PARENT] then
    call('ZADD', P .. 'task:children:' .. state[PARENT], whole(state[SEQ]), id)
  end
  index_labels(id, state, task.labels)
  if state[IDEM] then
    call('SET', P .. 'task:key:' .. state[IDEM], cmsgpack.pack({ id, state[DIGEST] }))
  end
  all_tasks[#all_tasks + 1] = state[SEQ]
  all_tasks[#all_tasks + 1] = id
  call('HSET', task_key(id), 'state', cmsgpack.pack(state), 'detail', task.detail)
  count(state, 1)
end

-- A dependency needs the states of both tasks, so a waiting task is stored after its dependencies are known.
local function link(task, seen)
  wait_for_remote(task.id, task.state, task.remote)
  for _, on in ipairs(task.needs) do
    local on_state = seen[on] and seen[on][2] or read_state(on)
    if not is_met(on_state, task.tolerant) then
      wait_for(task.id, task.state, on, on_state, task.tolerant)
      on_state[AWAITED] = true
      if not seen[on] then
        write_state(on, on_state)
      end
    end
  end
end

local function answer_for(group, earlier)
  local stored = {}
  for place, task in ipairs(group) do
    local known = earlier[task[1]]
    stored[place] = known and call('EXISTS', task_key(known)) == 1 and record_of(known) or (known or task[1])
  end
  return { 'stored', stored }
end

local function add(group)
  local earlier, conflict = earlier_of(group)
  if not earlier then
    return conflict
  end
  local fresh, seen = fresh_of(group, earlier)
  if not fresh then
    return seen
  end
  local refusal = unknown_need(fresh, seen) or full_queue(fresh)
  if refusal then
    return refusal
  elseif request.try then
    return answer_for(group, earlier)
  end
  for _, task in ipairs(fresh) do
    link(task, seen)
  end
  for _, task in ipairs(fresh) do
    store(task)
  end
  return answer_for(group, earlier)
end

local written = { P .. 'events', 'stream', P .. 'queue:levels', 'hash', P .. 'tally', 'hash', P .. 'queue:depth', 'hash',
  P .. 'task:all', 'zset' }
local is_listed = {}
local function expect(key, kind)
  if not is_listed[key] then
    is_listed[key] = true
    written[#written + 1] = key
    written[#written + 1] = kind
  end
end
for _, group in ipairs(request.groups) do
  for _, task in ipairs(group) do
    expect(stream_key(task[2][QUEUE], task[2][PRIORITY]), 'stream')
    for _, label in ipairs(task[10] or {}) do
      expect(label_key(label), 'zset')
    end
  end
end
must_be(written)

local answers = {}
for place, group in ipairs(request.groups) do
  answers[place] = add(group)
end
if added > 0 then
  in_portions('ZADD', P .. 'task:all', all_tasks)
  move_counters(P .. 'queue:levels', levels)
  flush_counts()
  flush_log(newest)
  notify('work')
end
return answers
