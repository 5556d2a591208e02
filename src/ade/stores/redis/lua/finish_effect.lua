-- uses: base
-- flags: allow-oom
-- finish_effect: the effect is done. request.digest, request.run_id, request.answer (JSON).
-- Answers 1, or 0 when the ledger does not name this run.

local entry = P .. 'effect:' .. request.digest
if call('HGET', entry, 'run_id') ~= request.run_id then
  return 0
end
call('HSET', entry, 'done', '1', 'answer', request.answer, 'at', whole(NOW))
call('ZADD', P .. 'effects', whole(NOW), request.digest)
return 1
