-- uses: base, types, fields, state, memory, log, agents
-- flags: allow-oom
-- agent_remove: forget request.agent and its units. request.event: packed event that tells of it, or false; request.token.
-- Answers 1, or 0 when it is not known.

local known = remembered()
if known then
  return known
end
call('DEL', UNITS)
if not agent then
  return 0
end
call('HDEL', AGENTS, agent.id)
if request.event then
  events[1], told = request.event, 1
  close_log()
end
return remember(1)
