-- The lock table of request.namespace, as a verb changes it. With lock_rules and lock_writes these are the rules of
-- ade/core/locks/book.py once more, equal in every step. A request is a map with the fields of LockRequest; it is copied, never
-- changed. Stored requests are read as needed and written at the end: decisions are in `changed`, `removed`, and the events.
local NAMESPACE = request.namespace
local REQUESTS = P .. 'lock:request:' .. NAMESPACE
local HELD, WAIT_QUEUE = P .. 'lock:held:' .. NAMESPACE .. ':', P .. 'lock:line:' .. NAMESPACE .. ':'
local NOW_US = request.now and request.now * 1000 or SERVER_US
local FRONT, OVERTAKING, WAITER_LEASE_MS, UNATTENDED_LEASE_MS = -1, 8, 15000, 900000
local CLOCK_WENT_BACK_MS = 5000
local RATE_KEPT_MS = 60000 -- after all of it is available again, so that nothing is lost

local seq, token, looked = 0, 0, 0 -- the highest ones so far, and when the table was last written
local marks = read_key('HGET', MARKS, NAMESPACE)
if marks then
  seq, token, looked = unpack(cmsgpack.unpack(marks))
end
if request.wanted then
  request.wanted.namespace = NAMESPACE -- callers omit default fields
end
local full_at -- when the owner's rate limit will be fully available again, in microseconds

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

local function conflict(mode, other)
  return mode == 'exclusive' or other == 'exclusive'
end

local function is_expired(one)
  local length = one.state == 'granted' and one.ttl_ms or one.unattended and UNATTENDED_LEASE_MS or WAITER_LEASE_MS
  if has_expired(one.lease_until, length) then
    return true
  end
  return one.wait_until and one.state ~= 'granted' and has_expired(one.wait_until, one.wait_until - one.asked_at)
end

local function waits_until(one)
  return STEADY + (one.unattended and UNATTENDED_LEASE_MS or WAITER_LEASE_MS)
end

local function next_token()
  token = math.max(token + 1, NOW_US)
  return token
end

-- Log an event of a request.
local function append_lock_event(event, one, more)
  local items = {}
  for place, item in ipairs(one.items) do
    items[place] = { resource = item.resource, mode = item.mode, token = item.token or 0 }
  end
  local payload = { namespace = one.namespace, request_id = one.id, state = one.state, items = items, scope = one.scope,
    purpose = one.purpose }
  for field, value in pairs(more or {}) do
    payload[field] = value
  end
  append_event(string.char(149) .. cmsgpack.pack(event, NOW, one.task_id, one.owner, payload)) -- an array of five
end

-- Complete a new request. It is not shared yet, so it can be changed.
local function new_request(wanted, wait_ms, first)
  seq = seq + 1
  local age = first > 0 and first < seq and first or seq
  wanted.state, wanted.ttl_ms, wanted.priority = 'waiting', wanted.ttl_ms or 30000, wanted.priority or 5
  wanted.seq, wanted.rank, wanted.asked_at = age, age + OVERTAKING * wanted.priority, NOW
  wanted.lease_until, wanted.wait_until = waits_until(wanted), wait_ms and STEADY + wait_ms or nil
  return wanted
end

-- The granted request, with its lease and fencing tokens.
local function as_granted(one)
  local items = {}
  for place, item in ipairs(one.items) do
    items[place] = { resource = item.resource, mode = item.mode, token = next_token() }
  end
  local granted = copy(one, { items = items, state = 'granted', lease_until = STEADY + one.ttl_ms, granted_at = NOW })
  granted.wait_until = nil
  return granted
end

-- Count a request of an owner, by GCRA as in ade/core/rate.py; or return after how many milliseconds it is allowed.
local function use_rate(one)
  local count = request.acquires
  if not count then
    return nil
  end
  local interval = math.ceil(request.acquires_per_ms * 1000 / count)
  local now, known = STEADY * 1000, tonumber(read_key('GET', rate_key(one)) or '0') or 0
  local latest = now + count * interval
  if known > latest then -- from before the clock was set back
    known = latest - interval
  end
  local earliest = known - (count - 1) * interval
  if earliest > now then
    return math.ceil(earliest / 1000) - STEADY
  end
  full_at = math.max(known, now) + interval
end

local function write_rate()
  if full_at then
    local kept = math.ceil(full_at / 1000) - STEADY + RATE_KEPT_MS
    call('SET', rate_key(request.wanted), whole(full_at), 'PX', whole(kept))
  end
end

local function write_marks()
  call('HSET', MARKS, NAMESPACE, cmsgpack.pack({ seq, token, math.max(looked, STEADY) }))
end

-- Publish which requests were settled or removed, so that waiting processes need not poll. Returns the message.
local function publish_update(settled, gone)
  local update = cmsgpack.pack({ settled = settled, gone = gone })
  notify('lock ' .. update)
  return update
end

local FIRST_PORTION, MOST_PORTION = 4, 256 -- waiters read with one command

local stored, changed, removed = {}, {}, {} -- requests by id; `stored` has `false` where there is none
local waiting = {} -- the waiting ones of `changed`
local holding, wait_queues = {}, {} -- by resource, as far as they were read

local function item_of(one, resource)
  for _, item in ipairs(one.items) do
    if item.resource == resource then
      return item
    end
  end
end

-- By bytes, independent of the server's locale.
local function text_before(one, other)
  for place = 1, math.min(#one, #other) do
    local left, right = string.byte(one, place), string.byte(other, place)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end

-- Whether one request comes before another in a wait queue.
local function before(one, other)
  if one.rank ~= other.rank then
    return one.rank < other.rank
  elseif one.seq ~= other.seq then
    return one.seq < other.seq
  end
  return text_before(one.id, other.id)
end

local function read_all(ids)
  local unread = {}
  for _, id in ipairs(ids) do
    if stored[id] == nil then
      unread[#unread + 1] = id
    end
  end
  for from = 1, #unread, 1000 do
    local found = read_key('HMGET', REQUESTS, unpack(unread, from, math.min(from + 999, #unread)))
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

local remove -- defined in lock_rules

local function is_alive(one)
  if not is_expired(one) then
    return true
  end
  if not removed[one.id] then
    remove(one, 'lock.expired')
  end
  return false
end

-- Update the holders of a resource, if they were read. `mode` is nil when the request no longer holds it.
local function set_holder(resource, id, mode)
  local found = holding[resource]
  local old = found and found.modes[id]
  if not found or old == mode then
    return
  end
  found.modes[id] = mode
  found.all = found.all + (mode and 1 or 0) - (old and 1 or 0)
  found.exclusive = found.exclusive + (mode == 'exclusive' and 1 or 0) - (old == 'exclusive' and 1 or 0)
end

-- The live holders of a resource: modes by id, and their number. The first call finds the expired ones and removes them.
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
  local ids = ids_of(read_key('ZRANGE', HELD .. resource, 0, -1))
  read_all(ids)
  for _, id in ipairs(ids) do
    if stored[id] and not is_touched(id) then
      found[#found + 1] = stored[id]
    end
  end
  local alive = {}
  for _, one in ipairs(found) do
    alive[one.id] = is_alive(one) and item_of(one, resource).mode or nil
  end
  holding[resource] = { modes = {}, all = 0, exclusive = 0 }
  for id, mode in pairs(alive) do
    set_holder(resource, id, mode)
  end
  return holding[resource]
end

-- Iterate over the stored waiters of a resource, without those that this verb has changed.
local function stored_waiters(resource)
  wait_queues[resource] = wait_queues[resource] or { ids = {}, first = 1, portion = FIRST_PORTION }
  local known = wait_queues[resource]
  local place = known.first
  return function()
    while true do
      if place > #known.ids and not known.whole then
        local new = ids_of(read_key('ZRANGE', WAIT_QUEUE .. resource, #known.ids, #known.ids + known.portion - 1))
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
        known.first = place + 1 -- it need not be checked again
      end
      place = place + 1
      if not touched and stored[id] then
        return stored[id]
      end
    end
  end
end

-- Iterate over the waiters of a resource, in order. Decisions made during the iteration count.
local function waiters(resource)
  local mine, at, next_stored, head, taken
  local function begin()
    mine, at = {}, 1
    for _, one in pairs(waiting) do
      if item_of(one, resource) then
        mine[#mine + 1] = one
      end
    end
    table.sort(mine, before)
    next_stored = stored_waiters(resource)
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
      if now and now.state == 'waiting' and is_alive(now) then
        return now
      end
    end
  end
end
