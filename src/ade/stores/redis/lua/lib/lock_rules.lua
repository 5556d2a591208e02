-- Deciding: who is let in, who leaves, and what is told of it. Every verb ends with settle().
local freed = {} -- resources behind whose line nobody has looked since somebody left them
local tasks_told = {} -- tasks that an event tells of
local stirred = false -- somebody else than the caller should hear of it

local function announce(event, one, more)
  tell_of(event, one, more)
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
  local granted = as_granted(one)
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
