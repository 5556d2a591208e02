-- uses: base
-- flags: allow-oom
-- remove_orphan_blobs: delete the blobs of tasks that do not exist. request.blobs: {task id, its time in `blobs` as read}, ...;
--   if that has changed, a blob was added meanwhile and all of them stay. Returns for how many tasks.

local removed = 0
for _, row in ipairs(request.blobs) do
  local id, seen = row[1], row[2]
  local put_at = call('ZSCORE', P .. 'blobs', id)
  if put_at and tonumber(put_at) == seen then
    for _, ref in ipairs(call('SMEMBERS', P .. 'blobs:' .. id)) do
      call('UNLINK', P .. 'blob:' .. ref)
    end
    call('DEL', P .. 'blobs:' .. id)
    call('ZREM', P .. 'blobs', id)
    removed = removed + 1
  end
end
return removed
