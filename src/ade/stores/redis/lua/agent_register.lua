-- uses: base, types, fields, state, memory, log, agents
-- flags: allow-oom
-- agent_register: make request.agent known as request.record, or change those of request.fields to what the record has;
--   request.event: packed event that tells of it, or false; request.token. It is heard of.
-- Answers {whether AGENT was rung, its record}.

local known = remembered()
if known then
  return known
end
local is_news = not agent
agent = agent or request.record
for _, field in ipairs(request.fields) do
  local given, had = request.record[field], agent[field]
  is_news = is_news or cmsgpack.pack(given or {}) ~= cmsgpack.pack(had or {})
  agent[field] = given
end
agent.seen_until = math.max(agent.seen_until or 0, STEADY)
put_agent()
if is_news and request.event then
  events[1], told = request.event, 1
  close_log()
end
return remember({ tell_of_room(), cmsgpack.pack(agent) })
