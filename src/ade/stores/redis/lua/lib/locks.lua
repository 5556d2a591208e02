-- The book of one namespace of locks as a verb changes it: the rules of ade/core/locks/book.py once more, equal in every step.
-- What is stored is read as far as somebody looks, and not touched before the end: what was decided is in `changed`, `removed`
-- and the events, and close_book() writes it together. A request is a map with the fields of LockRequest, and never changed but
-- copied. request.namespace names the book.
local NAMESPACE = request.namespace
local REQUESTS = P .. 'lock:request:' .. NAMESPACE
local HELD, LINE = P .. 'lock:held:' .. NAMESPACE .. ':', P .. 'lock:line:' .. NAMESPACE .. ':'
local NOW_US = request.now and request.now * 1000 or SERVER_US
local FRONT, OVERTAKING, WAITER_LEASE_MS, UNATTENDED_LEASE_MS = -1, 8, 15000, 900000
local FIRST_PORTION, MOST_PORTION = 4, 256 -- how many of a line are read at once
local MOST_NOTED = 3400 -- bytes: a task with hundreds of locks is told of by the log alone, its record must not grow for ever
local CLOCK_WENT_BACK_MS = 5000

local seq, token, looked = 0, 0, 0 -- the highest that were given, and when somebody last wrote here
local marks = look('HGET', MARKS, NAMESPACE)
if marks then
  seq, token, looked = unpack(cmsgpack.unpack(marks))
end

local stored, changed, removed = {}, {}, {} -- requests by id; `false` is stored where there is none
local waiting = {} -- those of `changed` that wait
local holding, lines = {}, {} -- by resource, as far as somebody has looked
local freed = {} -- resources behind whose line nobody has looked since somebody left them
local tasks_told = {} -- tasks that an event tells of
local stirred = false -- somebody else than the caller should hear of it

local function copy(one, changes)
  local new = {}
  for field, value in pairs(one) do
    new[field] = value
  end
  for field, value in pairs(changes) do
    new[field] = value
  end
  return new
end

local function item_of(one, resource)
  for _, item in ipairs(one.items) do
    if item.resource == resource then
      return item
    end
  end
end

local function conflict(mode, other)
  return mode == 'exclusive' or other == 'exclusive'
end

-- By bytes, whatever language the server speaks.
local function text_before(one, other)
  for place = 1, math.min(#one, #other) do
    local left, right = string.byte(one, place), string.byte(other, place)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end

-- Whether one has a place in line before another.
local function before(one, other)
  if one.rank ~= other.rank then
    return one.rank < other.rank
  elseif one.seq ~= other.seq then
    return one.seq < other.seq
  end
  return text_before(one.id, other.id)
end

-- What stands in it.

local function read_all(ids)
  local unread = {}
  for _, id in ipairs(ids) do
    if stored[id] == nil then
      unread[#unread + 1] = id
    end
  end
  for from = 1, #unread, 1000 do
    local found = look('HMGET', REQUESTS, unpack(unread, from, math.min(from + 999, #unread)))
    for place = 1, #found do
      stored[unread[from + place - 1]] = found[place] and cmsgpack.unpack(found[place])
    end
  end
end

local function ids_of(members)
  local ids = {}
  for place, member in ipairs(members) do
    ids[place] = string.sub(member, 18)
  end
  return ids
end

local function is_touched(id)
  return changed[id] ~= nil or removed[id] ~= nil
end

local function get(id)
  if removed[id] then
    return nil
  end
  if not changed[id] then
    read_all({ id })
  end
  return changed[id] or stored[id] or nil
end

local function is_dead(one)
  local out_of_time = one.wait_until and one.wait_until <= STEADY and one.state ~= 'granted'
  return one.lease_until <= STEADY or out_of_time
end

local remove

local function lives(one)
  if not is_dead(one) then
    return true
  end
  if not removed[one.id] then
    remove(one, 'lock.expired')
  end
  return false
end

-- Note who holds a resource, if somebody has looked at its holders already. `mode` is nil when it holds it no more.
local function hold(resource, id, mode)
  local found = holding[resource]
  local old = found and found.modes[id]
  if not found or old == mode then
    return
  end
  found.modes[id] = mode
  found.all = found.all + (mode and 1 or 0) - (old and 1 or 0)
  found.exclusive = found.exclusive + (mode == 'exclusive' and 1 or 0) - (old == 'exclusive' and 1 or 0)
end

-- Who lives and holds a resource: modes by id, and how many there are. The dead are found when somebody looks for the first time.
local function holders(resource)
  if holding[resource] then
    return holding[resource]
  end
  local found = {}
  for _, one in pairs(changed) do
    if one.state == 'granted' and item_of(one, resource) then
      found[#found + 1] = one
    end
  end
  local ids = ids_of(look('ZRANGE', HELD .. resource, 0, -1))
  read_all(ids)
  for _, id in ipairs(ids) do
    if stored[id] and not is_touched(id) then
      found[#found + 1] = stored[id]
    end
  end
  local living = {}
  for _, one in ipairs(found) do
    living[one.id] = lives(one) and item_of(one, resource).mode or nil
  end
  holding[resource] = { modes = {}, all = 0, exclusive = 0 }
  for id, mode in pairs(living) do
    hold(resource, id, mode)
  end
  return holding[resource]
end

-- Step through what is stored of a line, over those that somebody has touched.
local function stored_in(resource)
  lines[resource] = lines[resource] or { ids = {}, first = 1, portion = FIRST_PORTION }
  local known = lines[resource]
  local place = known.first
  return function()
    while true do
      if place > #known.ids and not known.whole then
        local new = ids_of(look('ZRANGE', LINE .. resource, #known.ids, #known.ids + known.portion - 1))
        known.whole = #new < known.portion
        known.portion = math.min(2 * known.portion, MOST_PORTION)
        for _, id in ipairs(new) do
          known.ids[#known.ids + 1] = id
        end
        read_all(new)
      end
      local id = known.ids[place]
      if not id then
        return nil
      end
      local touched = is_touched(id)
      if touched and place == known.first then
        known.first = place + 1 -- nobody need look at it again
      end
      place = place + 1
      if not touched and stored[id] then
        return stored[id]
      end
    end
  end
end

-- Step through those that wait for a resource, by their places. What was decided while somebody is reading counts.
local function line(resource)
  local mine, at, next_stored, head, taken
  local function begin()
    mine, at = {}, 1
    for _, one in pairs(waiting) do
      if item_of(one, resource) then
        mine[#mine + 1] = one
      end
    end
    table.sort(mine, before)
    next_stored = stored_in(resource)
    head = next_stored()
  end
  return function()
    if not mine then
      begin()
    end
    while true do
      if taken == 'stored' then
        head = next_stored()
      elseif taken == 'mine' then
        at = at + 1
      end
      if not mine[at] and not head then
        taken = nil
        return nil
      end
      taken = mine[at] and not (head and before(head, mine[at])) and 'mine' or 'stored'
      local now = get((taken == 'mine' and mine[at] or head).id)
      if now and now.state == 'waiting' and lives(now) then
        return now
      end
    end
  end
end

-- What is decided.

local function announce(event, one, more)
  local items = {}
  for place, item in ipairs(one.items) do
    items[place] = { resource = item.resource, mode = item.mode, token = item.token or 0 }
  end
  local payload = { namespace = one.namespace, request_id = one.id, state = one.state, items = items, scope = one.scope,
    purpose = one.purpose }
  for field, value in pairs(more or {}) do
    payload[field] = value
  end
  tell(string.char(149) .. cmsgpack.pack(event, NOW, one.task_id, one.owner, payload)) -- an array of five
  if one.task_id then
    tasks_told[one.task_id] = true
  end
end

local function put(one)
  changed[one.id] = one
  waiting[one.id] = one.state == 'waiting' and one or nil
  for _, item in ipairs(one.items) do
    hold(item.resource, one.id, one.state == 'granted' and item.mode or nil)
  end
end

local function drop(one)
  changed[one.id], waiting[one.id] = nil, nil
  removed[one.id] = one
  for _, item in ipairs(one.items) do
    hold(item.resource, one.id, nil)
  end
end

local function free(one)
  for _, item in ipairs(one.items) do
    freed[item.resource] = true
  end
end

local function upgrades_of(grant)
  local found = {}
  for _, item in ipairs(grant.items) do
    for waiter in line(item.resource) do
      if waiter.rank > FRONT then
        break
      end
      if waiter.upgrades == grant.id then
        found[#found + 1] = waiter
      end
    end
  end
  return found
end

-- It holds and wants nothing any more; those behind it are looked at when the verb has done its part.
function remove(one, event, more)
  drop(one)
  if one.state == 'victim' then -- it left the line when it gave way
    return
  end
  stirred = stirred or event ~= 'lock.released'
  free(one)
  announce(event, one, more)
  if one.state == 'granted' then
    for _, waiter in ipairs(upgrades_of(one)) do
      remove(waiter, 'lock.expired', { reason = 'the share it wanted to widen is gone' })
    end
  end
end

local function is_held_against(one, item)
  local found = holders(item.resource)
  local all, exclusive = found.all, found.exclusive
  for _, own in pairs({ one.id, one.upgrades }) do
    local mode = found.modes[own]
    all = all - (mode and 1 or 0)
    exclusive = exclusive - (mode == 'exclusive' and 1 or 0)
  end
  return (item.mode == 'exclusive' and all or exclusive) > 0
end

local function is_behind(one, item)
  for other in line(item.resource) do
    if other.id == one.id or before(one, other) then
      return false
    end
    if conflict(item_of(other, item.resource).mode, item.mode) then
      return true
    end
  end
  return false
end

-- Whether nobody holds, or waited earlier for, what would conflict with it.
local function is_free_for(one)
  for _, item in ipairs(one.items) do
    if is_held_against(one, item) or is_behind(one, item) then
      return false
    end
  end
  return true
end

local function next_token()
  token = math.max(token + 1, NOW_US)
  return token
end

-- The share becomes exclusive, under a new token; the request for it is done.
local function widen(one)
  local grant, items = get(one.upgrades), {}
  for place, item in ipairs(grant.items) do
    local wanted = item_of(one, item.resource)
    items[place] = wanted and { resource = item.resource, mode = 'exclusive', token = next_token() } or item
  end
  drop(one)
  local widened = copy(grant, { items = items })
  put(widened)
  announce('lock.upgraded', widened)
  return widened
end

local function grant(one, event)
  stirred = stirred or event == 'lock.promoted'
  if one.upgrades then
    return widen(one)
  end
  local items = {}
  for place, item in ipairs(one.items) do
    items[place] = { resource = item.resource, mode = item.mode, token = next_token() }
  end
  local granted = copy(one, { items = items, state = 'granted', lease_until = STEADY + one.ttl_ms, granted_at = NOW })
  granted.wait_until = nil
  put(granted)
  announce(event, granted)
  return granted
end

local function may_pass(one, ahead)
  for _, item in ipairs(one.items) do
    local passed = ahead[item.resource]
    if passed and conflict(passed, item.mode) then
      return false
    end
  end
  return true
end

-- From the front of these lines, all together by their place; never past somebody one would conflict with.
local function promote(resources)
  local ahead, seen, steps, heads, taken = {}, {}, {}, {}, nil
  for place, resource in ipairs(resources) do
    ahead[resource] = false -- the strictest mode that was passed over
    steps[place] = line(resource)
  end
  for place in ipairs(resources) do
    heads[place] = steps[place]() or false
  end
  local open = #resources -- lines in which somebody may still go first
  while open > 0 do
    if taken then
      heads[taken] = steps[taken]() or false
    end
    taken = nil
    for place, head in ipairs(heads) do
      if head and (not taken or before(head, heads[taken])) then
        taken = place
      end
    end
    if not taken then
      return
    end
    local waiter = heads[taken]
    if not seen[waiter.id] then
      seen[waiter.id] = true
      if may_pass(waiter, ahead) and is_free_for(waiter) then
        if not removed[waiter.id] then -- who looks at the holders may find its share dead, and it goes too
          grant(waiter, 'lock.promoted')
        end
      else
        for _, item in ipairs(waiter.items) do
          if ahead[item.resource] ~= nil and ahead[item.resource] ~= 'exclusive' then
            ahead[item.resource] = item.mode
            open = open - (item.mode == 'exclusive' and 1 or 0)
          end
        end
      end
    end
  end
end

-- Let in whoever can go now that others have left. Every verb ends with this.
local function settle()
  while next(freed) do
    local resources = {}
    for resource in pairs(freed) do
      resources[#resources + 1] = resource
    end
    table.sort(resources, text_before)
    freed = {}
    promote(resources)
  end
end

-- Writing.

local function is_moved(old, new)
  return old.state ~= new.state or old.rank ~= new.rank or old.seq ~= new.seq or #old.items ~= #new.items
end

-- Arguments of one command for each key.
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

-- Tasks whose locks are told of: their records name the entry of the log. Those of other partitions are not known here.
local function tasks_to_note()
  local states = {}
  for id in pairs(tasks_told) do
    local packed = look('HGET', task_key(id), 'state')
    local state = packed and cmsgpack.unpack(packed)
    if state and #state[LOGGED] < MOST_NOTED then
      states[id] = state
    end
  end
  return states
end

-- The request is no longer, or no longer as it was.
local function undo(old, to)
  local id, is_gone = old.id, not changed[old.id]
  if is_gone then
    add_to(to.hdel, REQUESTS, id)
    add_to(to.zrem, LEASES, lease_member(old))
    add_to(to.srem, owner_key(old), id)
  end
  if is_called(old) and (is_gone or not is_called(changed[id])) then
    add_to(to.srem, CALLED, lease_member(old))
  end
  if is_gone or is_moved(old, changed[id]) then
    for _, key in ipairs(places_of(old)) do
      add_to(to.zrem, key, member_of(old))
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
    add_to(to.sadd, owner_key(one), one.id)
  end
  if is_called(one) then
    add_to(to.sadd, CALLED, lease_member(one))
  end
  if not old or is_moved(old, one) then
    for _, key in ipairs(places_of(one)) do
      add_to(to.zadd, key, rank_text(one), member_of(one))
    end
  end
end

-- Write what was decided. Nothing is written before every key is known to be what it should be.
local function close_book()
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
  local noted = tasks_to_note()
  for _, command in ipairs({ 'hdel', 'zrem', 'srem', 'hset', 'zadd', 'sadd' }) do
    write_each(command, to[command])
  end
  for id, state in pairs(noted) do
    note(state)
    write_state(id, state)
  end
  call('HSET', MARKS, NAMESPACE, cmsgpack.pack({ seq, token, math.max(looked, STEADY) }))
  close_log()
  if stirred then
    ring('lock')
  end
end

-- When the server's clock went back, leases from before would end as much too late. They keep what was left of them.
if STEADY < looked - CLOCK_WENT_BACK_MS then
  local all, requests, ends = look('HGETALL', REQUESTS), {}, {}
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
