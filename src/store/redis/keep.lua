-- Extends an exclusive lock from its own key alone, if it is the token's.
-- KEYS[1] the lock. ARGV[1] token, [2] TTL in ms. The reply is that of 'renew' in lock.lua, without the counter.
local value = redis.pcall('GETRANGE', KEYS[1], 0, 1023)
if value.err then value = redis.pcall('HGET', KEYS[1], 'rlock') end
if value == '' then return {'absent', ''} end
local left = redis.call('PTTL', KEYS[1])
if type(value) ~= 'string' then return {'held', redis.call('TYPE', KEYS[1]).ok, 0, '', left} end
local seen = {'held', 'string', #value, string.sub(value, 1, 1024), left}
if string.find(value, 'broken ' .. ARGV[1] .. ' ', 1, true) == 1 then seen[1] = 'broken' end
if string.find(value, ARGV[1] .. ' ', 1, true) ~= 1 then return seen end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'renewed', ''}
