-- Reads the lock's holders, its fence counter and its queue. Changes nothing.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its queue
-- ARGV[1] number of waiters wanted, ARGV[2] most bytes of them
-- {{{'held', type, length, first KiB, PTTL}, …}, fence, {waiter, ticket, waiter, ticket, …}, more}
--   fence is empty if there is none, more is 1 if not all waiters are returned
local fence = redis.pcall('GETRANGE', KEYS[2], 0, 19)
local wanted, room = tonumber(ARGV[1]), tonumber(ARGV[2])
local waiters, more = {}, 0
if wanted > 0 then
  local found = redis.pcall('ZRANGE', KEYS[3], 0, wanted, 'WITHSCORES')
  for i = 1, found.err and 0 or #found, 2 do
    room = room - #found[i] - #found[i + 1]
    if i > 2 * wanted or room < 0 then
      more = 1
      break
    end
    waiters[i], waiters[i + 1] = found[i], found[i + 1]
  end
end
return {{peek(KEYS[1])}, type(fence) == 'string' and fence or '', waiters, more}
