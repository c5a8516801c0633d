-- Deletes a lock, or the tombstone in its place, without waiting for its holder, and wakes the next waiter.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its queue, KEYS[4] its open offer, KEYS[5] its standbys
-- ARGV[1] the holder's token, ARGV[2] the highest fence seen, ARGV[3] life of the fence counter in ms
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local seen = peek(KEYS[1])
if not seen then return {'absent'} end
if not ours(seen, ARGV[1]) and not broken(seen, ARGV[1]) then return seen end

-- The counter is raised above the holder's fence first. A healing request of the holder that is in flight then changes nothing
-- (heal.lua). A server that is out of memory refuses that, as it will refuse the healing, and still deletes the key.
local count = counter(KEYS[2])
if count ~= '' then
  local fence = math.max(tonumber(count), tonumber(ARGV[2])) + 1
  if fence < 4503599627370496 then redis.pcall('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3]) end
end
redis.call('DEL', KEYS[1])
offer(KEYS[3], KEYS[4], KEYS[5])
return {'forced'}
