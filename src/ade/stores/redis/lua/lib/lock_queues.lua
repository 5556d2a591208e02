-- The keys that contain a lock request. Members of wait queues are `<seq>:<id>`, so that requests of the same rank are ordered by
-- age.
local LEASES, MARKS, UNATTENDED = P .. 'lock:leases', P .. 'lock:marks', P .. 'lock:called'

-- Run a read command; its error names the key.
local function read_key(command, key, ...)
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

-- The key for each of its resources; a deadlock victim has none.
local function queue_keys_of(one)
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

-- The keys of the kinds of its resources, as a set; a deadlock victim has none.
local function kinds_of(one)
  local keys = {}
  for _, item in ipairs(one.state ~= 'victim' and one.items or {}) do
    keys[P .. 'lock:kind:' .. one.namespace .. ':' .. kind_of(item.resource)] = true
  end
  return keys
end

-- When it expires: with its lease, or with its wait.
local function end_of(one)
  if one.wait_until and one.state ~= 'granted' then
    return math.min(one.lease_until, one.wait_until)
  end
  return one.lease_until
end

-- Granted or aborted while no process was waiting for it.
local function is_settled_unattended(one)
  return one.unattended and one.state ~= 'waiting'
end

local function lease_member(one)
  return one.namespace .. ':' .. one.id
end
