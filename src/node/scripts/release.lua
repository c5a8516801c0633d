-- Deletes the lock if it is ours: compare and delete in one step.
-- KEYS[1] the lock
-- ARGV[1] token
-- {'released'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek(KEYS[1])
if not seen then return {'absent'} end
if not ours(seen, ARGV[1]) then return seen end
redis.call('DEL', KEYS[1])
return {'released'}
