-- uses: base, request_dedup
-- flags: allow-oom
-- effect: apply request.verb to the entry of the ledger that belongs to request.digest (of its key). The verbs:
--   begin (key, run_id, task_id): enter the effect, unless the ledger contains it. Returns the entry: {run id, task id or false,
--     done, answer or false, at}.
--   finish (run_id, answer: JSON): mark the effect as done. Returns 1, or 0 when another run began it.
--   delete (token): delete the entry, once: a repeated request leaves the entry of a later run alone. Returns 1.

local entry = P .. 'effect:' .. request.digest
if request.verb == 'begin' then
  if call('EXISTS', entry) == 0 then
    call('HSET', entry, 'key', request.key, 'run_id', request.run_id, 'task_id', request.task_id, 'done', '0', 'at', whole(NOW))
  end
  return call('HMGET', entry, 'run_id', 'task_id', 'done', 'answer', 'at')
elseif request.verb == 'finish' then
  if call('HGET', entry, 'run_id') ~= request.run_id then
    return 0
  end
  call('HSET', entry, 'done', '1', 'answer', request.answer, 'at', whole(NOW))
  call('ZADD', P .. 'effects', whole(NOW), request.digest)
  return 1
end
if not known_answer() then
  call('DEL', entry)
  call('ZREM', P .. 'effects', request.digest)
  keep_answer(1)
end
return 1
