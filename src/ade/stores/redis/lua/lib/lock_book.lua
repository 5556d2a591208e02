-- Reading the book of one namespace of locks, as a verb changes it: with lock_rules and lock_writing these are the rules of
-- ade/core/locks/book.py once more, equal in every step. What is stored is read as far as somebody looks, and not touched before
-- the end: what was decided is in `changed`, `removed` and the events.
local FIRST_PORTION, MOST_PORTION = 4, 256 -- how many of a line are read at once

local stored, changed, removed = {}, {}, {} -- requests by id; `false` is stored where there is none
local waiting = {} -- those of `changed` that wait
local holding, lines = {}, {} -- by resource, as far as somebody has looked

local function item_of(one, resource)
  for _, item in ipairs(one.items) do
    if item.resource == resource then
      return item
    end
  end
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

local remove -- see lock_rules

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
