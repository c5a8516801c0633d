-- Deletes the lock, or the tombstone in its place, if it is the token's: compare and delete in one step. Wakes the next waiter.
-- KEYS[1] the lock, KEYS[2] its queue, KEYS[3] its open offer, KEYS[4] its standbys
-- ARGV[1] token, or empty: the waiter leaves the queue, and no lock is released
-- ARGV[2] waiter, or empty: it never waited, ARGV[3] its ticket if it goes on waiting, else empty
-- ARGV[4] life of the queue in ms
-- {'released'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local waiter = ARGV[2]
-- Whether the waiter knows this node's queue: it is queued, or held the key and so was its head.
local knows = false
local seen = peek(KEYS[1])
local answer = seen or {'absent'}
if ARGV[1] ~= '' and (ours(seen, ARGV[1]) or broken(seen, ARGV[1])) then
  redis.call('DEL', KEYS[1])
  answer, seen, knows = {'released'}, nil, true
end
if waiter ~= '' then
  if ARGV[3] == '' then
    redis.pcall('ZREM', KEYS[2], waiter)
  else
    knows = redis.pcall('ZADD', KEYS[2], 'NX', ARGV[3], waiter) == 0 or knows
    redis.pcall('PEXPIRE', KEYS[2], ARGV[4])
  end
end
if seen == nil and (answer[1] == 'released' or waiter ~= '') then
  -- A waiter that goes on waiting as the head knows that it is its turn. Every other head is told.
  if ARGV[3] ~= '' and knows and waiters(KEYS[2], 0, 0)[1] == waiter then
    record_offer(KEYS[2], KEYS[3], KEYS[4], waiter)
  else
    offer(KEYS[2], KEYS[3], KEYS[4])
  end
end
return answer
