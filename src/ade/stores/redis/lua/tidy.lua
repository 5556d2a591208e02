-- uses: base
-- flags: allow-oom
-- tidy: forget streams of tasks that are empty, with nothing pending, and were not written to after request.before (ms; ids of entries are
--   microseconds).
-- request.streams: their keys. The next claim makes a stream and its group anew. Answers how many went.

local gone = 0
for _, stream in ipairs(request.streams) do
  if call('EXISTS', stream) == 1 and call('XLEN', stream) == 0 then
    local facts = call('XINFO', 'STREAM', stream)
    local last = '0-0'
    for place = 1, #facts, 2 do
      last = facts[place] == 'last-generated-id' and facts[place + 1] or last
    end
    local idle = true
    for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
      for place = 1, #group, 2 do
        idle = idle and not (group[place] == 'pending' and group[place + 1] > 0)
      end
    end
    if idle and tonumber(string.match(last, '^%d+')) < request.before * 1000 then
      gone = gone + call('DEL', stream)
    end
  end
end
return gone
