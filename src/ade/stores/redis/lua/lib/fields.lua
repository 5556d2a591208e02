-- The state of a task: a MessagePack array in the field `state` of its hash. `false` stands for nothing.
local STATUS, STAGE, QUEUE, NAME, PRIORITY, RUN_AFTER, DEADLINE, VERSION = 1, 2, 3, 4, 5, 6, 7, 8
local GENERATION, ATTEMPT, RUN_ID, WORKER, LEASE, WAITING = 9, 10, 11, 12, 13, 14
local CREATED, UPDATED, STARTED, FINISHED, DISCARDED, KEY, PARENT = 15, 16, 17, 18, 19, 20, 21
local SEQ = 22 -- age: lower is older; also the id of its first stream entry
local WHERE = 23 -- of its place or its run: 'stream', 'line', or 'back:<entry>'
local IDEM, DIGEST = 24, 25 -- the key that makes repeated requests one task, and what was asked for under it
local AWAITED = 26 -- other tasks wait for it
local EXPIRES = 27 -- when its result is to be forgotten
local LETTER = 28 -- its entry in the dead-letter stream
local LOGGED = 29 -- ticks of the entries of the event log that tell of it, with spaces between
