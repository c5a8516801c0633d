-- Deletes a foreign value if it is still the one that was observed, and wakes the next waiters.
-- KEYS[1] the key, KEYS[5] its queue, KEYS[6] its turns
-- ARGV[1] type, ARGV[2] length, ARGV[3] first KiB
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek()
if not seen then return {'absent'} end
if seen[2] ~= ARGV[1] or seen[3] ~= tonumber(ARGV[2]) or seen[4] ~= ARGV[3] then return seen end
call('UNLINK', KEY)
offer()
return {'forced'}
