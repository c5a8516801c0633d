-- Extends an exclusive lock whose other keys are at another server of a cluster.
-- KEYS[1] the lock
-- ARGV[1] token, ARGV[2] TTL in ms
-- {'renewed', ''} | {'broken', type, length, tombstone, PTTL} | {'absent', ''} | {'held', type, length, first KiB, PTTL}
local seen = peek()
if not seen then return {'absent', ''} end
if marker(seen) then return redis.error_reply('TRYAGAIN the members of the lock are at another server') end
if broken(seen, ARGV[1]) then seen[1] = 'broken' end
if not ours(seen, ARGV[1]) then return seen end
call('PEXPIRE', KEY, ARGV[2])
return {'renewed', ''}
