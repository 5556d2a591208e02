-- uses: base
-- flags: allow-oom
-- configure: a queue's switch and limit. request.queue, request.settings (packed {paused, max_depth or false}), request.rings:
--   whether to wake those who wait for work.

call('HSET', P .. 'queues', request.queue, request.settings)
if request.rings then
  ring('work')
end
return 1
