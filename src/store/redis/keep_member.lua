-- Extends a member's lease from the members' own keys alone.
-- KEYS[1] the lock, [2] the leases, [3] the members. ARGV[1] token, [2] TTL in ms, [3] the index of its place, or empty: any
-- The reply is that of 'renew' in lock.lua, without the counter.
local marker, time = redis.pcall('GETRANGE', KEYS[1], 0, 5), redis.call('TIME')
local now = time[1] * 1e3 + math.floor(time[2] / 1e3)
local ends, entry = redis.call('ZSCORE', KEYS[2], ARGV[1]), redis.call('HGET', KEYS[3], ARGV[1])
local index, value = string.match(entry or '', '^(%d+) %d+ (.*)$')
if marker ~= 'rlock ' or not ends or tonumber(ends) < now or not index or ARGV[3] ~= '' and ARGV[3] ~= index then return {'absent', ''} end
if string.find(value, ARGV[1] .. ' ', 1, true) ~= 1 then return {'broken', 'string', #value, value, redis.call('PTTL', KEYS[1])} end
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
local till = string.format('%.0f', math.max(now + ARGV[2], tonumber(last)))
for _, key in ipairs(KEYS) do redis.call('PEXPIREAT', key, till) end
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), ARGV[1])
return {'renewed', ''}
