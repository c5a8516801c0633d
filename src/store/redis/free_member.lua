-- Takes a member out from the members' own keys alone, and deletes the lock with the last one. Tells no waiter.
-- KEYS[1] the lock, [2] the leases, [3] the members. ARGV[1] token
if redis.pcall('GETRANGE', KEYS[1], 0, 5) ~= 'rlock ' then return {'absent'} end
local index, value = string.match(redis.call('HGET', KEYS[3], ARGV[1]) or '', '^(%d+) %d+ (.*)$')
if not index or string.find(value, 'parked ', 1, true) == 1 then return {'absent'} end
local longest = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1], index ~= '0' and index or ARGV[1])
local last, left = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2], redis.call('PTTL', KEYS[1])
if not last and redis.call('HLEN', KEYS[3]) == 0 then redis.call('DEL', KEYS[1]) end
-- The key ends with its last member. keep_time() of lock.lua relies on that.
if last and left > 0 then
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, left - (longest - last)) end
end
return {'released'}
