-- Write all decisions together, and before that correct leases if the clock was set back.
local MOST_LOGGED = 3400 -- bytes: the record of a task with hundreds of locks must not grow without limit; the log has the rest

local function is_moved(old, new)
  return old.state ~= new.state or old.rank ~= new.rank or old.seq ~= new.seq or #old.items ~= #new.items
end

-- Collect the arguments of one command for each key.
local function add_to(commands, key, ...)
  commands[key] = commands[key] or {}
  for _, argument in ipairs({ ... }) do
    table.insert(commands[key], argument)
  end
end

local function write_each(command, commands)
  for key, arguments in pairs(commands) do
    in_portions(command, key, arguments)
  end
end

-- Tasks with lock events: their records name the entry of the log. Tasks of other partitions are not stored here.
local function tasks_to_log()
  local states = {}
  for id in pairs(logged_tasks) do
    local packed = read_key('HGET', task_key(id), 'state')
    local state = packed and cmsgpack.unpack(packed)
    if state and #state[LOGGED] < MOST_LOGGED then
      states[id] = state
    end
  end
  return states
end

-- Remove the index entries of a request that was removed or changed.
local function undo(old, to)
  local id, is_gone = old.id, not changed[old.id]
  if is_gone then
    add_to(to.hdel, REQUESTS, id)
    add_to(to.zrem, LEASES, lease_member(old))
    add_to(to.zrem, owner_key(old), id)
  end
  if is_settled_unattended(old) and (is_gone or not is_settled_unattended(changed[id])) then
    add_to(to.srem, UNATTENDED, lease_member(old))
  end
  if is_gone or is_moved(old, changed[id]) then
    for _, key in ipairs(queue_keys_of(old)) do
      add_to(to.zrem, key, member_of(old))
    end
    for key in pairs(kinds_of(old)) do
      if is_gone or not kinds_of(changed[id])[key] then
        add_to(to.zrem, key, id)
      end
    end
  end
end

local function enter(one, to)
  local old = stored[one.id]
  add_to(to.hset, REQUESTS, one.id, cmsgpack.pack(one))
  if not old or end_of(old) ~= end_of(one) then
    add_to(to.zadd, LEASES, whole(end_of(one)), lease_member(one))
  end
  if not old then
    add_to(to.zadd, owner_key(one), '0', one.id)
  end
  if is_settled_unattended(one) then
    add_to(to.sadd, UNATTENDED, lease_member(one))
  end
  if not old or is_moved(old, one) then
    for _, key in ipairs(queue_keys_of(one)) do
      add_to(to.zadd, key, rank_text(one), member_of(one))
    end
    for key in pairs(kinds_of(one)) do
      if not old or not kinds_of(old)[key] then
        add_to(to.zadd, key, '0', one.id)
      end
    end
  end
end

local update -- the published message, packed

-- Publish the requests that were granted, aborted, or removed.
local function notify_update()
  local settled, gone = {}, {}
  for id, one in pairs(changed) do
    local old = stored[id]
    if one.state ~= 'waiting' and (not old or old.state ~= one.state) then
      settled[#settled + 1] = one
    end
  end
  for id in pairs(removed) do
    gone[#gone + 1] = id
  end
  update = publish_update(settled, gone)
end

-- Write the decisions. Nothing is written before the type of every key is checked.
local function flush_table()
  if not next(changed) and not next(removed) then
    return
  end
  local to, ids = { hdel = {}, zrem = {}, srem = {}, hset = {}, zadd = {}, sadd = {} }, {}
  for id in pairs(changed) do
    ids[#ids + 1] = id
  end
  read_all(ids)
  for id in pairs(removed) do
    if stored[id] and not changed[id] then
      undo(stored[id], to)
    end
  end
  for id, one in pairs(changed) do
    if stored[id] then
      undo(stored[id], to)
    end
    enter(one, to)
  end
  local expected = { P .. 'events', 'stream', REQUESTS, 'hash' }
  for command, kind in pairs({ zrem = 'zset', zadd = 'zset', srem = 'set', sadd = 'set' }) do
    for key in pairs(to[command]) do
      expected[#expected + 1] = key
      expected[#expected + 1] = kind
    end
  end
  must_be(expected)
  local logged = tasks_to_log()
  for _, command in ipairs({ 'hdel', 'zrem', 'srem', 'hset', 'zadd', 'sadd' }) do
    write_each(command, to[command])
  end
  for id, state in pairs(logged) do
    note_entry(state)
    write_state(id, state)
  end
  write_marks()
  flush_log()
  if must_notify then
    notify_update()
  end
end

-- After the server's clock was set back, earlier leases would expire too late. They keep the time they had left.
if STEADY < looked - CLOCK_WENT_BACK_MS then
  local all, requests, ends = read_key('HGETALL', REQUESTS), {}, {}
  must_be({ LEASES, 'zset' })
  for place = 1, #all, 2 do
    local one = cmsgpack.unpack(all[place + 1])
    one.lease_until = one.lease_until + STEADY - looked
    one.wait_until = one.wait_until and one.wait_until + STEADY - looked
    requests[place], requests[place + 1] = one.id, cmsgpack.pack(one)
    ends[place], ends[place + 1] = whole(end_of(one)), lease_member(one)
  end
  in_portions('HSET', REQUESTS, requests)
  in_portions('ZADD', LEASES, ends)
  looked = STEADY
  call('HSET', MARKS, NAMESPACE, cmsgpack.pack({ seq, token, looked }))
end
