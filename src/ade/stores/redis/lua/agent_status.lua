-- uses: base, types, fields, state, memory, log, agents
-- flags: allow-oom
-- agent_status: let request.agent begin new tasks, or no more: request.status; request.event: packed event that tells of it, or
--   false; request.token. Answers {whether AGENT was rung, its record}, without a record when it is not known.

local known = remembered()
if known then
  return known
end
if not agent then
  return { 0 }
end
if agent.status ~= request.status then
  agent.status = request.status
  put_agent()
  if request.event then
    events[1], told = request.event, 1
    close_log()
  end
end
return remember({ tell_of_room(), cmsgpack.pack(agent) })
