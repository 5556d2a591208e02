-- uses: base, types, continuity
-- flags: allow-oom
-- agent: apply request.verb to request.agent (its id) and the leases on its units. The verbs:
--   register (record; fields: which of them to change if the agent exists; event, packed, or false; token). It counts as a
--     heartbeat.
--   set_status (status; event, or false; token).
--   remove (event, or false; token): delete the agent and its leases.
--   acquire (holders, lease_ms, over, clock as in lib/continuity.lua): release the units of `over`, then lease units to as many
--     holders as possible, in order. A holder that has a unit keeps it.
--   renew (holders, lease_ms, record, event): record a heartbeat and renew leases, also expired ones. An agent that does not
--     exist is registered.
--   check (repair): find units of an agent that does not exist, and with `repair` delete them. A holder that is alive registers
--     the agent again.
-- Returns {whether waiting callers were notified, the record} for register and set_status (no record: the agent does not exist),
--   {whether waiting callers were notified, holders with a unit} for acquire, the record for renew, 1 or 0 (it did not exist) for
--     remove, and sentences for check.
-- The record is a map with the fields of Agent, and `longest`: the longest lease ever granted.

local verb = request.verb
local AGENTS, UNITS = P .. 'agents', P .. 'agent:units:' .. request.agent
must_be({ AGENTS, 'hash', UNITS, 'zset' })
local stored = call('HGET', AGENTS, request.agent)
local agent = stored and cmsgpack.unpack(stored)

-- The same rule as in ade/core/agents.py.
local function free_units()
  if not agent or agent.status ~= 'active' then
    return 0
  end
  return math.max(agent.max_tasks - call('ZCARD', UNITS), 0)
end

-- Expired leases count here until they are deleted: the deletion is what waiting callers must be notified of.
local had_capacity = free_units() > 0

local function put_agent()
  call('HSET', AGENTS, agent.id, cmsgpack.pack(agent))
end

-- Notify callers that wait for a unit, if there is one now and there was none before.
local function notify_capacity()
  if had_capacity or free_units() == 0 then
    return 0
  end
  notify('agent')
  return 1
end

-- Release the units of some holders, and all expired ones. A lease that ends later than any lease can is from before the server's
-- clock was set back: it lasts as long as a new one.
local function release_units(holders)
  in_portions('ZREM', UNITS, holders)
  if #call('ZRANGEBYSCORE', UNITS, '-inf', whole(STEADY), 'LIMIT', 0, 1) > 0 then
    call('ZREMRANGEBYSCORE', UNITS, '-inf', whole(judged_until(agent and agent.longest or 0)))
  end
  local latest = whole(STEADY + (agent and agent.longest or 0))
  for _, holder in ipairs(agent and call('ZRANGEBYSCORE', UNITS, '(' .. latest, '+inf') or {}) do
    call('ZADD', UNITS, latest, holder)
  end
end

local function lease_units(holders)
  local ends, arguments = whole(STEADY + request.lease_ms), {}
  for _, holder in ipairs(holders) do
    arguments[#arguments + 1] = ends
    arguments[#arguments + 1] = holder
  end
  in_portions('ZADD', UNITS, arguments)
end

if verb == 'acquire' then
  release_units(request.over)
  local left, granted, new, seen = free_units(), {}, {}, {}
  for _, holder in ipairs(agent and request.holders or {}) do
    local has_one = call('ZSCORE', UNITS, holder)
    if not seen[holder] and (has_one or left > 0) then
      granted[#granted + 1] = holder
      if not has_one then
        new[#new + 1] = holder
        left = left - 1
      end
    end
    seen[holder] = true
  end
  if #new > 0 and request.lease_ms > (agent.longest or 0) then
    agent.longest = request.lease_ms
    put_agent()
  end
  lease_units(new)
  return { notify_capacity(), granted }
end

-- uses: fields, state, request_dedup, log
local known = request.token and known_answer()
if known then
  return known
end

local function log_event()
  if request.event then
    append_event(request.event)
    flush_log()
  end
end

if verb == 'register' then
  local is_changed = not agent
  agent = agent or request.record
  for _, field in ipairs(request.fields) do
    local new, old = request.record[field], agent[field]
    is_changed = is_changed or cmsgpack.pack(new or {}) ~= cmsgpack.pack(old or {})
    agent[field] = new
  end
  agent.seen_until = math.max(agent.seen_until or 0, STEADY)
  put_agent()
  if is_changed then
    log_event()
  end
  return keep_answer({ notify_capacity(), cmsgpack.pack(agent) })
end

if verb == 'set_status' then
  if not agent then
    return { 0 }
  end
  if agent.status ~= request.status then
    agent.status = request.status
    put_agent()
    log_event()
  end
  return keep_answer({ notify_capacity(), cmsgpack.pack(agent) })
end

if verb == 'remove' then
  call('DEL', UNITS)
  if not agent then
    return 0
  end
  call('HDEL', AGENTS, agent.id)
  log_event()
  return keep_answer(1)
end

if verb == 'renew' then
  if not agent then
    agent = request.record
    log_event()
  end
  agent.seen_until = STEADY + request.lease_ms
  agent.longest = math.max(agent.longest or 0, request.lease_ms)
  put_agent()
  lease_units(request.holders)
  return cmsgpack.pack(agent)
end

if agent or call('EXISTS', UNITS) == 0 then
  return {}
end
if request.repair then
  call('DEL', UNITS)
end
return { 'there are units of agent ' .. request.agent .. ', which does not exist' }
