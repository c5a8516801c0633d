-- Deletes a foreign value if it is still the one that was observed, and wakes the next waiter.
-- KEYS[1] the key, KEYS[2] its queue, KEYS[3] its open offer, KEYS[4] its standbys
-- ARGV[1] type, ARGV[2] length, ARGV[3] first KiB
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek(KEYS[1])
if not seen then return {'absent'} end
if seen[2] ~= ARGV[1] or seen[3] ~= tonumber(ARGV[2]) or seen[4] ~= ARGV[3] then return seen end
redis.call('UNLINK', KEYS[1])
offer(KEYS[2], KEYS[3], KEYS[4])
return {'forced'}
