-- uses: base, request_dedup
-- flags: allow-oom
-- prune_effects: delete the effects request.gone (digests), whose tasks no longer exist, and move those of request.retained to the
--   end of the list. Effects that were entered again after request.before (ms) are left alone. request.token. Returns how many
--   were deleted.

local known = known_answer()
if known then
  return known
end
local function is_old(digest)
  local at = call('ZSCORE', P .. 'effects', digest)
  return at and tonumber(at) < request.before
end
local deleted = 0
for _, digest in ipairs(request.gone) do
  if is_old(digest) then
    call('DEL', P .. 'effect:' .. digest)
    call('ZREM', P .. 'effects', digest)
    deleted = deleted + 1
  end
end
for _, digest in ipairs(request.retained) do
  if is_old(digest) then
    call('HSET', P .. 'effect:' .. digest, 'at', whole(NOW))
    call('ZADD', P .. 'effects', whole(NOW), digest)
  end
end
return keep_answer(deleted)
