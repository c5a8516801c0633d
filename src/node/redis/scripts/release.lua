-- Ends the token's lock, tombstone or not: compare and delete in one step. Wakes the next waiters.
-- KEYS[1] the lock, KEYS[3] its members' leases, KEYS[4] its members, KEYS[5] its queue, KEYS[6] its turns
-- ARGV[1] token, or empty: the waiter leaves the queue, and no lock is released
-- ARGV[2] waiter, or empty: it never waited, ARGV[3] its ticket if it goes on waiting, else empty
-- ARGV[4] life of the queue in ms
-- ARGV[5] 'CAME WAITER' of a waiter with --supersede that goes on waiting (newest.lua), else empty
--   KEYS[7] is the newest such waiter. One that came before it does not go on.
-- {'released'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local waiter = ARGV[2]
local released, seen, answer = false
if ARGV[1] ~= '' then
  released, seen, answer = give_up(ARGV[1])
else
  seen = peek()
end
-- Whether the waiter knows this node's queue: it is queued, or held the key and so was its head.
local knows = released
if waiter ~= '' then
  if ARGV[3] == '' or ARGV[5] ~= '' and tostring(try('GET', KEYS[7]) or '') > ARGV[5] then
    drop(waiter)
  else
    knows = try('ZADD', QUEUE, 'NX', ARGV[3], waiter) == 0 or knows
    try('PEXPIRE', QUEUE, ARGV[4])
  end
end
-- A waiter that goes on waiting at the head knows that it is its turn. Every other one is told.
if released or waiter ~= '' then pass_on(seen, ARGV[3] ~= '' and knows and waiter or nil) end
return released and {'released'} or answer or {'absent'}
