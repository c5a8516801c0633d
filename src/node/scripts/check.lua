-- Tells whether the lock is ours, and changes nothing.
-- KEYS[1] the lock
-- ARGV[1] token
-- {'ours'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek(KEYS[1])
if not seen then return {'absent'} end
if not ours(seen, ARGV[1]) then return seen end
return {'ours'}
