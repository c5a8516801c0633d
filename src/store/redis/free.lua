-- Deletes an exclusive lock from its own key alone, if it is the token's or its tombstone. Tells no waiter.
-- KEYS[1] the lock. ARGV[1] token
local value = redis.pcall('GETRANGE', KEYS[1], 0, 1023)
if value == '' then return {'absent'} end
if type(value) ~= 'string' then return {'held'} end
value = string.match(value, '^broken (.*)') or value
if string.find(value, ARGV[1] .. ' ', 1, true) ~= 1 then return {'held'} end
redis.call('DEL', KEYS[1])
return {'released'}
