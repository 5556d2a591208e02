-- uses: base, types, inboxes
-- flags: allow-oom
-- inbox_survey: look whether inboxes are whole and stand where they belong, and with request.mend put them there. request.key: one of
--   the keys `inbox:...` behind the prefix, request.members: some of what is in it, or nothing for an inbox itself. Answers sentences.
-- An inbox that cannot be read is left for a person to look at.

local faults = {}

local function fault(id, what)
  faults[#faults + 1] = 'the inbox ' .. id .. ' ' .. what
end

local function is_at(key, score, id)
  local found = call('ZSCORE', key, id)
  if not score then
    return not found
  end
  return found and tonumber(found) == score
end

local function is_in_place(id, stand)
  for key, score in pairs(places_of(stand)) do
    if not is_at(key, score, id) then
      return false
    end
  end
  return not stand[2] or is_at(fed_key(stand[2]), stand[4], id)
end

local function look_at(id)
  local can_be_read, stand = pcall(read_stand, id)
  if not can_be_read then
    return fault(id, 'cannot be read')
  end
  local others = stand == UNUSED and 0 or 2
  if call('HLEN', inbox_key(id)) ~= stand[3] + others then
    fault(id, 'has not the items that it should have')
  end
  if not is_in_place(id, stand) then
    fault(id, 'is not where it belongs')
    if request.mend then
      place_inbox(id, stand, stand)
    end
  end
end

local one, consumer = string.match(request.key, '^inbox:record:(.*)$'), string.match(request.key, '^inbox:fed:(.*)$')
if one then
  look_at(one)
end
for _, id in ipairs(request.members) do
  look_at(id)
  local can_be_read, stand = pcall(read_stand, id)
  if consumer and can_be_read and stand[2] ~= consumer and call('ZSCORE', fed_key(consumer), id) then
    fault(id, 'is not fed on by ' .. consumer)
    if request.mend then
      call('ZREM', fed_key(consumer), id)
    end
  end
end
return faults
