-- Deletes an exclusive lock, which may have Redisson's form, from its own key alone, if it is the token's or its tombstone. Tells no waiter.
-- KEYS[1] the lock. ARGV[1] token, [2] the channel on which Redisson's clients wait
local value = redis.pcall('GETRANGE', KEYS[1], 0, 1023)
local hash = value.err
if hash then value = redis.pcall('HGET', KEYS[1], 'rlock') end
if value == '' then return {'absent'} end
if type(value) ~= 'string' then return {'held'} end
value = string.match(value, '^broken (.*)') or value
if string.find(value, ARGV[1] .. ' ', 1, true) ~= 1 then return {'held'} end
redis.call('DEL', KEYS[1])
for _, publish in ipairs(hash and {'PUBLISH', 'SPUBLISH'} or {}) do redis.pcall(publish, ARGV[2], '0') end
return {'released'}
