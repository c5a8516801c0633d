-- Deletes a lock, or the tombstone in its place, without its holder, and tells the next who waits.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its queue, KEYS[4] its open offer, KEYS[5] its watch
-- ARGV[1] the holder's token, ARGV[2] the highest fence seen, ARGV[3] life of the fence counter in ms
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek(KEYS[1])
if not seen then return {'absent'} end
if not ours(seen, ARGV[1]) and not broken(seen, ARGV[1]) then return seen end

-- The counter passes the holder's fence first: a request of the holder's to set the key again that is on its way then changes
-- nothing (heal.lua). A server that is out of memory refuses that, as it will refuse to set the key, and still deletes it.
local count = counter(KEYS[2])
if count ~= '' then
  local fence = math.max(tonumber(count), tonumber(ARGV[2])) + 1
  if fence < 4503599627370496 then redis.pcall('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3]) end
end
redis.call('DEL', KEYS[1])
offer(KEYS[3], KEYS[4], KEYS[5])
return {'forced'}
