-- uses: base, types, documents
-- flags: allow-oom
-- document_expire: delete expired documents, request.limit at most. Returns how many expiry entries it checked.

must_be({ MARKS, 'hash', EXPIRIES, 'zset' })
local due = call('ZRANGEBYSCORE', EXPIRIES, '-inf', whole(NOW), 'LIMIT', 0, request.limit)
for _, name in ipairs(due) do
  local kind, id = string.match(name, '^([^:]*):(.*)$')
  local can_be_read, one = pcall(read_document, kind, id)
  if can_be_read and is_expired(one) then
    raise_mark(kind, one[1])
    call('HDEL', documents_key(kind), id)
  end
  if can_be_read and one[2] and not is_expired(one) then -- the document decides, not the index
    call('ZADD', EXPIRIES, whole(one[2]), name)
  else
    call('ZREM', EXPIRIES, name)
  end
end
write_marks()
return #due
