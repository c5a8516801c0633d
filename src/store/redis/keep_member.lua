-- Extends a member's lease from the members' own keys alone.
-- KEYS[1] the lock, [2] the leases, [3] the members. ARGV[1] token, [2] TTL in ms, [3] the index of its place
-- The reply is that of 'renew' in lock.lua, without the counter.
local marker, time = redis.pcall('GETRANGE', KEYS[1], 0, 5), redis.call('TIME')
local now, left = time[1] * 1e3 + math.floor(time[2] / 1e3), redis.call('PTTL', KEYS[1])
local ends, entry = redis.call('ZSCORE', KEYS[2], ARGV[1]), redis.call('HGET', KEYS[3], ARGV[1])
local index, value = string.match(entry or '', '^(%d+) %d+ (.*)$')
local function last_end() return tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]) end
local last = last_end()
-- How far this server's clock is ahead of the one by which the ends were written, as keep_time() of lock.lua finds it.
local shift = now + left - (last or now + left)
if left <= 0 or shift <= 1000 then shift = 0 end
now = now - shift
if marker ~= 'rlock ' or not ends or tonumber(ends) < now or index ~= ARGV[3] then return {'absent', ''} end
if string.find(value, ARGV[1] .. ' ', 1, true) ~= 1 then return {'broken', 'string', #value, value, left} end
local function expire(key, till) redis.call('PEXPIREAT', key, string.format('%.0f', till + shift)) end
-- In the order of extend() in lock.lua. The end may move back: the clock was set back.
expire(KEYS[1], math.max(now + ARGV[2], last))
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), ARGV[1])
for _, key in ipairs(KEYS) do expire(key, last_end()) end
return {'renewed', ''}
