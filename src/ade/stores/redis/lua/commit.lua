-- uses: base, types, fields, state, log, counts, streams, memory, plain
-- flags: allow-oom
-- commit: write decided changes whose guards hold. It may use memory past the server's limit, so that running work can end.
-- request.groups: {together, changes}; a change is {id, guard version, guard run id, guard lease, patch, detail, outcome, events,
--   more}: patch is index, value, ... of the state; detail and outcome are false when untouched; `more` is false or
--   {due: it was due when it ran, depends_on, remote, tolerant: what a replayed task waits for again, quarantine: keep what is
--   there, move_to: the partition of an edited draft's new queue}.
-- request.plain: runs of plain tasks that ended well (lib/plain.lua), by kind: {queue, name, priority, ends}, where ends are id,
--   run id, when, begin of the state as it was and as it shall be, outcome, event, ...
-- A group that is `together` is written whole or not at all. Answers {posted, rung, verdicts of each group, number and verdict of
--   each plain end that was not as expected}; `posted` counts messages left in the outbox, `rung` names the hints that were given.
--   A verdict is 'written', 'repeated' (this very change was written before), 'missing', or {status, run id} of the record that
--   the guard met instead.

-- request.token is given when a guard cannot tell a repeated change from another one's.
local known = request.token and remembered()
if known then
  return known
end

must_be({ P .. 'events', 'stream', P .. 'queue:leases', 'zset', P .. 'tally', 'hash', P .. 'queue:depth', 'hash',
  P .. 'queue:running', 'hash', P .. 'queue:levels', 'hash', P .. 'task:finished', 'zset' })
local freed, has_ended, stopped = false, false, false
local finished, moments = {}, {} -- when and id of tasks that end with this call; moments as texts
local listened = call('EXISTS', RESULTS) == 1 -- somebody made a group there

local function tell_outcome(id, state, outcome)
  has_ended = true
  if listened then
    call('XADD', RESULTS, '*', 'id', id, 'name', state[NAME], 'queue', state[QUEUE], 'status', state[STATUS],
      'attempt', state[ATTEMPT], 'run_id', state[RUN_ID] or '', 'outcome', outcome or '',
      'at', whole(state[FINISHED] or NOW))
  end
end

local function close_commit(posted, answers, plain_answers)
  in_portions('ZADD', P .. 'task:finished', finished)
  close_runs()
  close_streams(true)
  close_counts()
  close_log()
  local rung = {}
  for topic, is_so in pairs({ work = freed, done = has_ended, stop = stopped }) do
    if is_so then
      ring(topic)
      rung[#rung + 1] = topic
    end
  end
  local answer = { posted, rung, answers, plain_answers }
  return request.token and remember(answer) or answer
end

-- A run of a plain task ended well. Answers whether all was as expected, and so is written.
local function end_plain(stream, ends, place)
  local id, expected, outcome = ends[place], ends[place + 3], ends[place + 5]
  local key = task_key(id)
  local packed = call('HGET', key, 'state')
  if not packed or not begins_with(packed, expected) then
    return false
  end
  local written = ended(packed, expected, ends[place + 4])
  if outcome == '' then
    call('HSET', key, 'state', written)
    call('HDEL', key, 'outcome')
  else
    call('HSET', key, 'state', written, 'outcome', outcome)
  end
  strike(stream, entry_of(packed, expected))
  released[#released + 1] = id
  local at = ends[place + 2]
  moments[at] = moments[at] or whole(at) -- as an argument, a number would be made a text each time, and slowly
  finished[#finished + 1] = moments[at]
  finished[#finished + 1] = id
  tell(ends[place + 6])
  if listened then
    tell_outcome(id, cmsgpack.unpack(written), outcome)
  end
  return true
end

local unlike, numbers, number = {}, {}, 0 -- ends that were not as expected, as changes, and their numbers
for _, kind in ipairs(request.plain or {}) do
  local queue, name, ends = kind[1], kind[2], kind[4]
  local stream, done = stream_key(queue, kind[3]), 0
  for place = 1, #ends, 7 do
    number = number + 1
    if not passed and HAS_USUAL_TICKS and end_plain(stream, ends, place) then
      done = done + 1
    else
      local at = ends[place + 2]
      local patch = { STATUS, 'completed', UPDATED, at, WORKER, false, LEASE, false, FINISHED, at, EXPIRES, false }
      unlike[#unlike + 1] = { ends[place], false, ends[place + 1], false, patch, false, ends[place + 5], { ends[place + 6] } }
      numbers[#unlike] = number
    end
  end
  if done > 0 then
    has_ended = true
    count_in(queue, name, 'running', -done)
    count_in(queue, name, 'completed', done)
  end
end
if #request.groups == 0 and #unlike == 0 then
  return close_commit(0, {}, {})
end

-- uses: places, edges
local function verdict_on(change, state)
  if not state then
    return 'missing'
  end
  local version, run_id, lease = change[2], change[3], change[4]
  local holds = (not version or state[VERSION] == version)
    and (not run_id or (state[RUN_ID] == run_id and state[STATUS] == 'running'))
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
    in_portions('ZADD', P .. 'task:finished', finished) -- it may have ended earlier in this very call
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

-- Dead letters lie in a stream of their own for foreign readers, until somebody has dealt with them.
local function post_letter(id, state, change)
  local is_letter = state[STATUS] == 'failed' and not state[DISCARDED]
  if is_letter and not state[LETTER] then
    local kept = call('HMGET', task_key(id), 'detail', 'outcome')
    state[LETTER] = call('XADD', DLQ, '*', 'id', id, 'name', state[NAME], 'queue', state[QUEUE],
      'detail', change[6] or kept[1] or '', 'outcome', change[7] or kept[2] or '', 'attempts', state[ATTEMPT],
      'failed_at', whole(state[FINISHED] or NOW))
  elseif state[LETTER] and not is_letter then
    call('XDEL', DLQ, state[LETTER])
    state[LETTER] = false
  end
end

-- An edited draft may have another key or parent.
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

local function keep_what_is_there(id)
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

-- An edited draft goes to a queue of another partition: its record goes there by way of the outbox.
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
    keep_what_is_there(id)
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
  stopped = stopped or (old == 'running' and not change[3]) -- somebody else ended the run
  local is_final = FINAL[state[STATUS]]
  if is_final and state[WAITING] > 0 then
    forget_needs(id, state)
  end
  if was_final and not is_final then
    give_hope(id)
    wait_again(id, state, more.depends_on or {}, more.tolerant)
    wait_afar(id, state, more.remote or {})
  end
  if CLAIMABLE[state[STATUS]] then
    enter(id, state, more.due)
    freed = freed or state[STAGE] ~= 'blocked'
    if state[STAGE] == 'blocked' and has_broken_needs(id) then
      call('SADD', P .. 'queue:broken', id)
    end
  end
  if more.move_to then
    record(state, change[8])
    move_out(id, old, idem, parent, state, change)
    return
  end
  index_rare(id, old, state)
  index_end(id, was_final, state, expires)
  index_identity(id, idem, parent, state)
  post_letter(id, state, change)
  record(state, change[8])
  write_parts(id, state, change)
  if is_final and not was_final then
    tell_outcome(id, state, change[7])
    if state[AWAITED] then
      freed = settle_dependents(id, state[STATUS] == 'completed') or freed
    end
  end
  if parking and (old == 'running' or (CLAIMABLE[old] and is_final)) then
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
      apply(change, read_state(change[1])) -- an earlier change of this commit may have touched it
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

local answers, plain_answers = {}, {}
for place, verdict in ipairs(commit_each(unlike)) do
  plain_answers[2 * place - 1], plain_answers[2 * place] = numbers[place], verdict
end
for place, group in ipairs(request.groups) do
  answers[place] = group[1] and commit_together(group[2]) or commit_each(group[2])
end
return close_commit(posted, answers, plain_answers)
