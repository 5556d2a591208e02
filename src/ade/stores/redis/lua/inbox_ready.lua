-- uses: base, inboxes
-- flags: no-writes
-- inbox_ready: list inboxes that one of request.consumers can read from now, request.limit at most of each: {id, when its oldest
--   item was added, ...}, the oldest of each consumer first.

local PORTION = 100
local found = {}

local function collect(consumer)
  local from, left = 0, request.limit
  repeat
    local portion = call('ZRANGE', fed_key(consumer), from, from + PORTION - 1, 'WITHSCORES')
    for place = 1, #portion, 2 do
      local ends = call('ZSCORE', HELD, portion[place])
      if left > 0 and not (ends and tonumber(ends) > STEADY) then
        found[#found + 1] = portion[place]
        found[#found + 1] = portion[place + 1]
        left = left - 1
      end
    end
    from = from + PORTION
  until left == 0 or #portion < 2 * PORTION
end

for _, consumer in ipairs(request.consumers) do
  collect(consumer)
end
return found
