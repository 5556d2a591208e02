-- uses: base, types, agents
-- flags: allow-oom
-- agent_survey: look whether request.agent is known, of whom there are units, and with request.mend take away those of one that is
-- not: whoever is at work enters it again. Answers sentences.

if agent or call('EXISTS', UNITS) == 0 then
  return {}
end
if request.mend then
  call('DEL', UNITS)
end
return { 'there are units of agent ' .. request.agent .. ', which is not known' }
