-- uses: base, types, fields, state, labels, log, counters, streams, task_streams, dependencies, request_dedup
-- flags: allow-oom
-- commit: write decided changes whose guards hold. It can use memory past the server's limit, so that running work can end.
-- request.groups: {together, changes}; a change is {id, guard version, guard run id, guard lease, patch, detail, outcome, events,
--   more}: `patch` is index, value, ... of the state; `detail` and `outcome` are false when they do not change; `more` is false
--   or {due: the task was due when it ran, depends_on, remote, tolerant: dependencies of a replayed task, quarantine: keep a copy
--   of the record, move_to: the partition of an edited draft's new queue, lost_labels, labels: those of an edited draft}.
-- request.token: given when a guard cannot distinguish a repeated change from another one.
-- A group that is `together` is written completely or not at all. Returns {posted, notified, verdicts of each group}; `posted`
--   counts messages in the outbox, `notified` lists the topics of notifications. A verdict is 'written', 'repeated' (this change
--   was written before), 'missing', or {status, run id} of the record when the guard does not hold.

local known = request.token and known_answer()
if known then
  return known
end

must_be({ P .. 'events', 'stream', P .. 'queue:leases', 'zset', P .. 'tally', 'hash', P .. 'queue:depth', 'hash',
  P .. 'queue:running', 'hash', P .. 'queue:levels', 'hash', P .. 'task:finished', 'zset' })
local freed, has_ended, stopped = false, false, false
local finished = {} -- time and id of tasks that end with this call
local listened = call('EXISTS', RESULTS) == 1 -- a reader has created a group

local function publish_outcome(id, state, outcome)
  has_ended = true
  if listened then
    call('XADD', RESULTS, '*', 'id', id, 'name', state[NAME], 'queue', state[QUEUE], 'status', state[STATUS],
      'attempt', state[ATTEMPT], 'run_id', state[RUN_ID] or '', 'outcome', outcome or '',
      'at', whole(state[FINISHED] or NOW))
  end
end

local function verdict_on(change, state)
  if not state then
    return 'missing'
  end
  local version, run_id, lease = change[2], change[3], change[4]
  -- A run whose lease expired still holds its task until another worker claims it.
  local holds = (not version or state[VERSION] == version)
    and (not run_id or (state[RUN_ID] == run_id and (state[STATUS] == 'running' or state[STATUS] == 'stalled')))
    and (not lease or state[LEASE] == lease)
  if holds then
    return 'written'
  end
  local patch = change[5]
  if run_id and state[RUN_ID] == run_id then
    for place = 1, #patch, 2 do
      if patch[place] == STATUS and patch[place + 1] == state[STATUS] then
        return 'repeated'
      end
    end
  end
  return { state[STATUS], state[RUN_ID] or '' }
end

local function index_rare(id, old, state)
  if old == state[STATUS] then
    return
  end
  if not COMMON[old] then
    call('ZREM', P .. 'task:index:state:' .. old, id)
  end
  if not COMMON[state[STATUS]] then
    call('ZADD', P .. 'task:index:state:' .. state[STATUS], whole(state[SEQ]), id)
  end
end

local function index_end(id, was_final, state, before)
  if FINAL[state[STATUS]] and state[FINISHED] then
    finished[#finished + 1] = state[FINISHED]
    finished[#finished + 1] = id
  elseif was_final then
    in_portions('ZADD', P .. 'task:finished', finished) -- it might have ended earlier in this call
    finished = {}
    call('ZREM', P .. 'task:finished', id)
  end
  if state[EXPIRES] ~= before then
    if state[EXPIRES] then
      call('ZADD', P .. 'task:results', whole(state[EXPIRES]), id)
    else
      call('ZREM', P .. 'task:results', id)
    end
  end
end

-- Dead letters are in a stream of their own for external readers, until they are replayed or discarded.
local function post_dead_letter(id, state, change)
  local is_dead_letter = state[STATUS] == 'failed' and not state[DISCARDED]
  if is_dead_letter and not state[LETTER] then
    local kept = call('HMGET', task_key(id), 'detail', 'outcome')
    state[LETTER] = call('XADD', DLQ, '*', 'id', id, 'name', state[NAME], 'queue', state[QUEUE],
      'detail', change[6] or kept[1] or '', 'outcome', change[7] or kept[2] or '', 'attempts', state[ATTEMPT],
      'failed_at', whole(state[FINISHED] or NOW))
  elseif state[LETTER] and not is_dead_letter then
    call('XDEL', DLQ, state[LETTER])
    state[LETTER] = false
  end
end

-- An edited draft can have another idempotency key or parent.
local function index_identity(id, idem, parent, state)
  if state[IDEM] ~= idem then
    if idem then
      call('DEL', P .. 'task:key:' .. idem)
    end
    if state[IDEM] then
      call('SET', P .. 'task:key:' .. state[IDEM], cmsgpack.pack({ id, state[DIGEST] }))
    end
  end
  if state[PARENT] ~= parent then
    if parent then
      call('ZREM', P .. 'task:children:' .. parent, id)
    end
    if state[PARENT] then
      call('ZADD', P .. 'task:children:' .. state[PARENT], whole(state[SEQ]), id)
    end
  end
end

local function quarantine(id)
  local there = call('HMGET', task_key(id), 'detail', 'outcome')
  call('HSET', P .. 'quarantine:' .. id, 'detail', there[1] or '', 'outcome', there[2] or '', 'at', whole(NOW))
  call('SADD', P .. 'quarantined', id)
end

local function write_parts(id, state, change)
  local fields = { 'state', cmsgpack.pack(state) }
  if change[6] then
    fields[#fields + 1] = 'detail'
    fields[#fields + 1] = change[6]
  end
  if change[7] and change[7] ~= '' then
    fields[#fields + 1] = 'outcome'
    fields[#fields + 1] = change[7]
  end
  call('HSET', task_key(id), unpack(fields))
  if change[7] == '' then
    call('HDEL', task_key(id), 'outcome')
  end
end

-- An edited draft moves to a queue of another partition: its record is sent through the outbox.
local function move_out(id, old, idem, parent, state, change)
  local kept = call('HMGET', task_key(id), 'detail', 'outcome')
  count(state, -1)
  if not COMMON[old] then
    call('ZREM', P .. 'task:index:state:' .. old, id)
  end
  if idem then
    call('DEL', P .. 'task:key:' .. idem)
  end
  if parent then
    call('ZREM', P .. 'task:children:' .. parent, id)
  end
  remove_labels(id, state, labels_in(kept[1]))
  call('ZREM', P .. 'task:all', id)
  call('DEL', task_key(id))
  post(change[9].move_to, 'move', cmsgpack.pack({ state, change[6] or kept[1], change[7] or kept[2] or '' }), id)
end

local function apply(change, state)
  local id, patch, more = change[1], change[5], change[9] or {}
  local old, idem, parent, expires, key = state[STATUS], state[IDEM], state[PARENT], state[EXPIRES], state[KEY]
  local parking = key and parking_of(state)
  local was_final = FINAL[old]
  if more.quarantine then
    quarantine(id)
  end
  count(state, -1)
  if old == 'running' then
    release_run(id, state)
  elseif state[STAGE] then
    leave(id, state)
  end
  for place = 1, #patch, 2 do
    state[patch[place]] = patch[place + 1]
  end
  state[VERSION] = state[VERSION] + 1
  count(state, 1)
  stopped = stopped or (old == 'running' and not change[3]) -- the run was ended from outside
  local is_final = FINAL[state[STATUS]]
  if is_final and state[WAITING] > 0 then
    delete_needs(id, state)
  end
  if was_final and not is_final then
    reopen_dependents(id)
    wait_again(id, state, more.depends_on or {}, more.tolerant)
    wait_for_remote(id, state, more.remote or {})
  end
  if CLAIMABLE[state[STATUS]] then
    enter(id, state, more.due)
    freed = freed or state[STAGE] ~= 'blocked'
  end
  if WAITS[state[STATUS]] and state[WAITING] > 0 and has_broken_needs(id) then
    call('SADD', P .. 'queue:broken', id)
  end
  if more.move_to then
    append_task_events(state, change[8])
    move_out(id, old, idem, parent, state, change)
    return
  end
  for _, label in ipairs(more.lost_labels or {}) do
    call('ZREM', label_key(label), id)
  end
  for _, label in ipairs(more.labels or {}) do
    call('ZADD', label_key(label), whole(state[SEQ]), id)
  end
  index_rare(id, old, state)
  index_end(id, was_final, state, expires)
  index_identity(id, idem, parent, state)
  post_dead_letter(id, state, change)
  append_task_events(state, change[8])
  write_parts(id, state, change)
  if is_final and not was_final then
    publish_outcome(id, state, change[7])
    if state[AWAITED] then
      freed = settle_dependents(id, state[STATUS] == 'completed') or freed
    end
  end
  if parking and (old == 'running' or CLAIMABLE[old]) then -- another one can be the first of its key now
    freed = unpark(parking) or freed
  end
end

local function commit_together(changes)
  local states, verdicts = {}, {}
  for place, change in ipairs(changes) do
    states[place] = read_state(change[1])
    verdicts[place] = verdict_on(change, states[place])
    if verdicts[place] ~= 'written' and verdicts[place] ~= 'repeated' then
      return { verdicts[place], place }
    end
  end
  for place, change in ipairs(changes) do
    if verdicts[place] == 'written' then
      apply(change, read_state(change[1])) -- an earlier change of this commit might have changed it
    end
  end
  return { 'written' }
end

local function commit_each(changes)
  local verdicts = {}
  for place, change in ipairs(changes) do
    local state = read_state(change[1])
    verdicts[place] = verdict_on(change, state)
    if verdicts[place] == 'written' then
      apply(change, state)
    end
  end
  return verdicts
end

local answers = {}
for place, group in ipairs(request.groups) do
  answers[place] = group[1] and commit_together(group[2]) or commit_each(group[2])
end
in_portions('ZADD', P .. 'task:finished', finished)
flush_runs()
flush_streams(true)
flush_counts()
flush_log()
local notified = {}
for topic, is_so in pairs({ work = freed, done = has_ended, stop = stopped }) do
  if is_so then
    notify(topic)
    notified[#notified + 1] = topic
  end
end
local answer = { posted, notified, answers }
return request.token and keep_answer(answer) or answer
