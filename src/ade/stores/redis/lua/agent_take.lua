-- uses: base, types, agents
-- flags: allow-oom
-- agent_take: units of request.agent for as many of request.holders as may have one, in their order, for request.lease_ms; those
--   that have one keep it. First the units of request.over are given back. Answers {whether AGENT was rung, holders with a unit}.

end_units(request.over)
local left, given, new, seen = room(), {}, {}, {}
for _, holder in ipairs(agent and request.holders or {}) do
  local has_one = call('ZSCORE', UNITS, holder)
  if not seen[holder] and (has_one or left > 0) then
    given[#given + 1] = holder
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
lend(new, request.lease_ms)
return { tell_of_room(), given }
