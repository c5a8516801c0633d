-- Puts a tombstone in the place of a lock. The key keeps others out, and the holder learns at its next renewal that it must
-- stop its command. Once that is dead the holder deletes the tombstone as it would its lock (release.lua).
-- KEYS[1] the lock
-- ARGV[1] the holder's token, ARGV[2] the tombstone: 'broken', token and details. It keeps the key's TTL.
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek(KEYS[1])
if not seen then return {'absent'} end
if broken(seen, ARGV[1]) then return {'forced'} end
if not ours(seen, ARGV[1]) then return seen end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return {'forced'}
