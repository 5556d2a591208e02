-- uses: base, documents
-- flags: allow-oom
-- scan_documents: check whether documents and their expiry entries agree, and with request.repair correct the entries.
--   request.key: one of the keys `documents:<kind>` or `document:ends`, without the prefix, request.members: some of its members.
--   Returns sentences. A document that cannot be read is left for an operator.

local faults = {}

local function check(kind, id)
  local name = expiry_member(kind, id)
  local can_be_read, one = pcall(read_document, kind, id)
  if not can_be_read then
    faults[#faults + 1] = 'the ' .. kind .. ' ' .. id .. ' cannot be read'
    return
  end
  if tonumber(call('ZSCORE', EXPIRIES, name) or 'nan') == one[2] or not (one[2] or call('ZSCORE', EXPIRIES, name)) then
    return
  end
  faults[#faults + 1] = 'the ' .. kind .. ' ' .. id .. ' has a wrong expiry entry'
  if request.repair and one[2] then
    call('ZADD', EXPIRIES, whole(one[2]), name)
  elseif request.repair then
    call('ZREM', EXPIRIES, name)
  end
end

local of_kind = string.match(request.key, '^documents:(.*)$')
for _, member in ipairs(request.members) do
  if of_kind then
    check(of_kind, member)
  else
    check(string.match(member, '^([^:]*):(.*)$'))
  end
end
return faults
