-- Ends the token's exclusive lock whose other keys are at another server of a cluster. No waiter is told.
-- KEYS[1] the lock
-- ARGV[1] token
-- {'released'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek()
if not seen then return {'absent'} end
if marker(seen) then return redis.error_reply('TRYAGAIN the members of the lock are at another server') end
if not ours(seen, ARGV[1]) and not broken(seen, ARGV[1]) then return seen end
delete()
return {'released'}
