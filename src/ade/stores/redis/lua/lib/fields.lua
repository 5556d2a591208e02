-- The state of a task: a MessagePack array in the field `state` of its hash. `false` stands for nothing.
-- What changes with a run comes first and the log behind all that others have too, so that lib/plain.lua can put both anew without taking the rest apart.
local STATUS, STAGE = 1, 2
local WHERE = 3 -- of its place or its run: 'stream', 'line', or 'back:<entry>'
local VERSION, ATTEMPT, RUN_ID, WORKER, LEASE, STARTED, FINISHED, WAITING = 4, 5, 6, 7, 8, 9, 10, 11
local DISCARDED, DEADLINE, KEY = 12, 13, 14
local EXPIRES = 15 -- when its result is to be forgotten
local LETTER = 16 -- its entry in the dead-letter stream
local UPDATED = 17
local AWAITED = 18 -- other tasks wait for it
local SEQ = 19 -- age: lower is older; also the id of its first stream entry
local QUEUE, NAME, PRIORITY, RUN_AFTER, GENERATION, CREATED, PARENT = 20, 21, 22, 23, 24, 25, 26
local IDEM, DIGEST = 27, 28 -- the key that makes repeated requests one task, and what was asked for under it
local LOGGED = 29 -- ticks of the entries of the event log that tell of it, with spaces between
local NEEDS = 30 -- capabilities that its worker must have, with commas between; most tasks ask for none, and have no such field
