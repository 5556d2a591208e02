-- uses: base
-- flags: allow-oom
-- begin_effect: enter an effect, unless the ledger has it already. request.digest (of its key), request.key, request.run_id.
-- Answers what the ledger has: {run id, done, answer or false, at}.

local entry = P .. 'effect:' .. request.digest
if call('EXISTS', entry) == 0 then
  call('HSET', entry, 'key', request.key, 'run_id', request.run_id, 'done', '0', 'at', whole(NOW))
end
return call('HMGET', entry, 'run_id', 'done', 'answer', 'at')
