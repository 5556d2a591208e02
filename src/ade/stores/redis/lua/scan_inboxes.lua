-- uses: base, types, inboxes
-- flags: allow-oom
-- scan_inboxes: check whether inboxes are complete and indexed, and with request.repair index them. request.key: one of the keys
--   `inbox:...`, without the prefix, request.members: some of its members, or nothing for an inbox itself. Returns sentences. An
--   inbox that cannot be read is left for an operator.

local faults = {}

local function fault(id, what)
  faults[#faults + 1] = 'the inbox ' .. id .. ' ' .. what
end

local function has_score(key, score, id)
  local found = call('ZSCORE', key, id)
  if not score then
    return not found
  end
  return found and tonumber(found) == score
end

local function is_indexed(id, summary)
  for key, score in pairs(scores_of(summary)) do
    if not has_score(key, score, id) then
      return false
    end
  end
  return not summary[2] or has_score(fed_key(summary[2]), summary[4], id)
end

local function check(id)
  local can_be_read, summary = pcall(read_summary, id)
  if not can_be_read then
    return fault(id, 'cannot be read')
  end
  local others = summary == UNUSED and 0 or 2
  if call('HLEN', inbox_key(id)) ~= summary[3] + others then
    fault(id, 'has another number of items than its head states')
  end
  if not is_indexed(id, summary) then
    fault(id, 'has wrong index entries')
    if request.repair then
      index_inbox(id, summary, summary)
    end
  end
end

local one, consumer = string.match(request.key, '^inbox:record:(.*)$'), string.match(request.key, '^inbox:fed:(.*)$')
if one then
  check(one)
end
for _, id in ipairs(request.members) do
  check(id)
  local can_be_read, summary = pcall(read_summary, id)
  if consumer and can_be_read and summary[2] ~= consumer and call('ZSCORE', fed_key(consumer), id) then
    fault(id, 'has another consumer than ' .. consumer)
    if request.repair then
      call('ZREM', fed_key(consumer), id)
    end
  end
end
return faults
