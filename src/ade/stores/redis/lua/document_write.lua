-- uses: base, types, fields, state, memory, log, documents
-- flags: allow-oom
-- document_write: carry out request.writes one after the other, all or none: {kind, id, body (JSON) or false to remove it, the
--   version that was seen, 0 for none, or false for whatever is there, when it expires (ms) or false}, ...; request.events: packed
--   events that tell of it; request.token. Rings for rules if there are writes. Answers 0, or the place of a write that is refused
--   because the document is not as it was seen.

local known = remembered()
if known then
  return known
end
local expected = { P .. 'events', 'stream', MARKS, 'hash', ENDS, 'zset' }
for _, write in ipairs(request.writes) do
  expected[#expected + 1] = documents_key(write[1])
  expected[#expected + 1] = 'hash'
end
must_be(expected)

local after = {} -- by kind and id: {kind, id, document}
for place, write in ipairs(request.writes) do
  local kind, id, body, seen, expires_at = unpack(write)
  local name = end_member(kind, id)
  local one = after[name] and after[name][3] or read_document(kind, id)
  if seen and seen ~= (is_over(one) and 0 or one[1]) then
    return place
  end
  if body then
    one = { (one[3] and one[1] or mark_of(kind)) + 1, expires_at, body }
  else
    raise_mark(kind, one[1])
    one = { 0, false, false }
  end
  after[name] = { kind, id, one }
end

for name, each in pairs(after) do
  local kind, id, one = unpack(each)
  if one[3] then
    call('HSET', documents_key(kind), id, cmsgpack.pack(one))
  else
    call('HDEL', documents_key(kind), id)
  end
  if one[2] then
    call('ZADD', ENDS, whole(one[2]), name)
  else
    call('ZREM', ENDS, name)
  end
end
keep_marks()
events, told = request.events, #request.events
close_log()
if request.rings then
  ring('rules')
end
return remember(0)
