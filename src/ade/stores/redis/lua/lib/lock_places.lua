-- Where a request for locks stands. Members of lines are `<seq>:<id>`, so that those of the same rank stand by their age.
local LEASES, MARKS, CALLED = P .. 'lock:leases', P .. 'lock:marks', P .. 'lock:called'

-- A command that reads; its error names the key.
local function look(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if type(found) == 'table' and found.err then
    error({ err = found.err .. ': ' .. key })
  end
  return found
end

local function member_of(one)
  return string.format('%016d:', one.seq) .. one.id
end

local function rank_text(one)
  return string.format('%.17g', one.rank)
end

-- The key for each of its resources; a victim stands nowhere.
local function places_of(one)
  local keys = {}
  for place, item in ipairs(one.state ~= 'victim' and one.items or {}) do
    local resource = one.namespace .. ':' .. item.resource
    keys[place] = one.state == 'granted' and P .. 'lock:held:' .. resource or P .. 'lock:line:' .. resource
  end
  return keys
end

local function owner_key(one)
  return P .. 'lock:owner:' .. one.namespace .. ':' .. one.owner
end

local function rate_key(one)
  return P .. 'lock:rate:' .. one.namespace .. ':' .. one.owner
end

-- The part of a resource's name before its first colon.
local function kind_of(resource)
  return string.match(resource, '^[^:]*')
end

-- The keys of the kinds of its resources, as a set; a victim stands nowhere.
local function kinds_of(one)
  local keys = {}
  for _, item in ipairs(one.state ~= 'victim' and one.items or {}) do
    keys[P .. 'lock:kind:' .. one.namespace .. ':' .. kind_of(item.resource)] = true
  end
  return keys
end

-- When its time is over: that of its lease, or of its wait.
local function end_of(one)
  if one.wait_until and one.state ~= 'granted' then
    return math.min(one.lease_until, one.wait_until)
  end
  return one.lease_until
end

-- Let in, or told to give way, while nobody was there to hear of it.
local function is_called(one)
  return one.unattended and one.state ~= 'waiting'
end

local function lease_member(one)
  return one.namespace .. ':' .. one.id
end
