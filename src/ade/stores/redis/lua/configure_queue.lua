-- uses: base, fields, state, request_dedup, log
-- flags: allow-oom
-- configure_queue: set the pause switch and limit of a queue. request.queue, request.settings (packed {paused, max_depth or
--   false}), request.notifies: whether to wake up workers that wait for tasks; request.event: packed event, or false;
--   request.token.

call('HSET', P .. 'queues', request.queue, request.settings)
if request.event and not known_answer() then
  append_event(request.event)
  flush_log()
  keep_answer(1)
end
if request.notifies then
  notify('work')
end
return 1
