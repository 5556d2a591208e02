-- uses: base, types, fields, state, memory, log, agents
-- flags: allow-oom
-- agent_register: make request.agent known as request.record, or change its max_tasks to that of the record, unless
--   request.keep; request.event: packed event that tells of it, or false; request.token. It is heard of.
-- Answers {whether AGENT was rung, its record}.

local known = remembered()
if known then
  return known
end
local is_news = not agent or not (request.keep or agent.max_tasks == request.record.max_tasks)
agent = agent or request.record
if not request.keep then
  agent.max_tasks = request.record.max_tasks
end
agent.seen_until = math.max(agent.seen_until or 0, STEADY)
put_agent()
if is_news and request.event then
  events[1], told = request.event, 1
  close_log()
end
return remember({ tell_of_room(), cmsgpack.pack(agent) })
