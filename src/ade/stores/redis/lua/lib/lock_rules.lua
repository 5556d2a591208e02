-- The rules: which requests are granted, which are removed, and which events are logged. Every verb ends with settle().
local freed = {} -- released resources whose wait queue was not checked yet
local logged_tasks = {} -- tasks with a new event
local must_notify = false -- whether processes other than the caller must be notified

local function announce(event, one, more)
  append_lock_event(event, one, more)
  if one.task_id then
    logged_tasks[one.task_id] = true
  end
end

local function put(one)
  changed[one.id] = one
  waiting[one.id] = one.state == 'waiting' and one or nil
  for _, item in ipairs(one.items) do
    set_holder(item.resource, one.id, one.state == 'granted' and item.mode or nil)
  end
end

local function drop(one)
  changed[one.id], waiting[one.id] = nil, nil
  removed[one.id] = one
  for _, item in ipairs(one.items) do
    set_holder(item.resource, one.id, nil)
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
    for waiter in waiters(item.resource) do
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

-- Remove a request. The requests behind it are checked when the verb is done.
function remove(one, event, more)
  drop(one)
  if one.state == 'victim' then -- it left the wait queue when it was aborted
    return
  end
  must_notify = must_notify or event ~= 'lock.released'
  free(one)
  announce(event, one, more)
  if one.state == 'granted' then
    for _, waiter in ipairs(upgrades_of(one)) do
      remove(waiter, 'lock.expired', { reason = 'the shared lock to upgrade is gone' })
    end
  end
end

local function is_held_by_others(one, item)
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
  for other in waiters(item.resource) do
    if other.id == one.id or before(one, other) then
      return false
    end
    if conflict(item_of(other, item.resource).mode, item.mode) then
      return true
    end
  end
  return false
end

-- Whether no conflicting request holds a resource or waited earlier for it.
local function is_free_for(one)
  for _, item in ipairs(one.items) do
    if is_held_by_others(one, item) or is_behind(one, item) then
      return false
    end
  end
  return true
end

-- The shared lock becomes exclusive, with a new token; the upgrade request is removed.
local function upgrade_grant(one)
  local grant, items = get(one.upgrades), {}
  for place, item in ipairs(grant.items) do
    local wanted = item_of(one, item.resource)
    items[place] = wanted and { resource = item.resource, mode = 'exclusive', token = next_token() } or item
  end
  drop(one)
  local upgraded = copy(grant, { items = items })
  put(upgraded)
  announce('lock.upgraded', upgraded)
  return upgraded
end

local function grant(one, event)
  must_notify = must_notify or event == 'lock.promoted'
  if one.upgrades then
    return upgrade_grant(one)
  end
  local granted = as_granted(one)
  put(granted)
  announce(event, granted)
  return granted
end

local function can_pass(one, ahead)
  for _, item in ipairs(one.items) do
    local passed = ahead[item.resource]
    if passed and conflict(passed, item.mode) then
      return false
    end
  end
  return true
end

-- Grant from the front of these wait queues, merged by position. A request never passes one that conflicts with it.
local function promote(resources)
  local ahead, seen, steps, heads, taken = {}, {}, {}, {}, nil
  for place, resource in ipairs(resources) do
    ahead[resource] = false -- the strictest mode that is still waiting
    steps[place] = waiters(resource)
  end
  for place in ipairs(resources) do
    heads[place] = steps[place]() or false
  end
  local open = #resources -- wait queues in which a request can still be granted
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
      if can_pass(waiter, ahead) and is_free_for(waiter) then
        if not removed[waiter.id] then -- reading the holders can find its shared lock expired, which removes it
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

-- Grant the requests that can be granted after others were removed.
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
