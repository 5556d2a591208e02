-- uses: base, types, fields, state, log, agents
-- flags: allow-oom
-- agent_renew: request.agent is heard of, and the leases of request.holders are set anew for request.lease_ms; one that ran out
--   is given again. An agent that is not known is entered as request.record, told of by request.event. Answers its record.

if not agent then
  agent = request.record
  events[1], told = request.event, 1
  close_log()
end
agent.seen_until = STEADY + request.lease_ms
agent.longest = math.max(agent.longest or 0, request.lease_ms)
put_agent()
lend(request.holders, request.lease_ms)
return cmsgpack.pack(agent)
