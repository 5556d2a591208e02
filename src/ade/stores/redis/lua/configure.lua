-- uses: base, fields, state, memory, log
-- flags: allow-oom
-- configure: a queue's switch and limit. request.queue, request.settings (packed {paused, max_depth or false}), request.rings:
--   whether to wake those who wait for work; request.event: packed event that tells of it, or false; request.token.

call('HSET', P .. 'queues', request.queue, request.settings)
if request.event and not remembered() then
  events[1], told = request.event, 1
  close_log()
  remember(1)
end
if request.rings then
  ring('work')
end
return 1
