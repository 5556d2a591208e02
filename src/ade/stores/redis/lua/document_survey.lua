-- uses: base, documents
-- flags: allow-oom
-- document_survey: look whether documents and their ends fit, and with request.mend put the ends right. request.key: one of the
-- keys `documents:<kind>` or `document:ends` behind the prefix, request.members: some of what is in it. Answers sentences.
-- A document that cannot be read is left for a person to look at.

local faults = {}

local function look_at(kind, id)
  local name = end_member(kind, id)
  local can_be_read, one = pcall(read_document, kind, id)
  if not can_be_read then
    faults[#faults + 1] = 'the ' .. kind .. ' ' .. id .. ' cannot be read'
    return
  end
  if tonumber(call('ZSCORE', ENDS, name) or 'nan') == one[2] or not (one[2] or call('ZSCORE', ENDS, name)) then
    return
  end
  faults[#faults + 1] = 'the end of the ' .. kind .. ' ' .. id .. ' is not where it belongs'
  if request.mend and one[2] then
    call('ZADD', ENDS, whole(one[2]), name)
  elseif request.mend then
    call('ZREM', ENDS, name)
  end
end

local of_kind = string.match(request.key, '^documents:(.*)$')
for _, member in ipairs(request.members) do
  if of_kind then
    look_at(of_kind, member)
  else
    look_at(string.match(member, '^([^:]*):(.*)$'))
  end
end
return faults
