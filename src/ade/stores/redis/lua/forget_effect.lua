-- uses: base, memory
-- flags: allow-oom
-- forget_effect: take an entry out of the ledger, once. request.digest, request.token. A repeated request leaves alone what
--   another run has entered since.

if not remembered() then
  call('DEL', P .. 'effect:' .. request.digest)
  call('ZREM', P .. 'effects', request.digest)
  remember(1)
end
return 1
