-- An agent and the leases of its units; request.agent is its id. The record is a map with the fields of Agent, and `longest`: the
-- longest lease that was ever given.
local AGENTS, UNITS = P .. 'agents', P .. 'agent:units:' .. request.agent
must_be({ AGENTS, 'hash', UNITS, 'zset' })
local stored = call('HGET', AGENTS, request.agent)
local agent = stored and cmsgpack.unpack(stored)

-- How many more may have a unit: the rule of ade/core/agents.py once more.
local function room()
  if not agent or agent.status ~= 'active' then
    return 0
  end
  return math.max(agent.max_tasks - call('ZCARD', UNITS), 0)
end

-- Leases that ran out count here until somebody removes them: that is the news.
local had_room = room() > 0

local function put_agent()
  call('HSET', AGENTS, agent.id, cmsgpack.pack(agent))
end

-- Whoever waits for a unit is told when there is one that was not there before.
local function tell_of_room()
  if had_room or room() == 0 then
    return 0
  end
  ring('agent')
  return 1
end

-- Give back the units of some, and of all whose time is over. A lease that ends later than any was given for is from before the
-- server's clock went back: it lasts as long as a new one.
local function end_units(holders)
  in_portions('ZREM', UNITS, holders)
  call('ZREMRANGEBYSCORE', UNITS, '-inf', whole(STEADY))
  local latest = whole(STEADY + (agent and agent.longest or 0))
  for _, holder in ipairs(agent and call('ZRANGEBYSCORE', UNITS, '(' .. latest, '+inf') or {}) do
    call('ZADD', UNITS, latest, holder)
  end
end

local function lend(holders, lease_ms)
  local ends, arguments = whole(STEADY + lease_ms), {}
  for _, holder in ipairs(holders) do
    arguments[#arguments + 1] = ends
    arguments[#arguments + 1] = holder
  end
  in_portions('ZADD', UNITS, arguments)
end
