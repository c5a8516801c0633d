-- Placed before release.lua where an exclusive lock's command has ended and leaves something.
-- KEYS[8] the mark of a success
-- ARGV[6] ms for which the lock stays, or empty, ARGV[7] the value in its place, ARGV[8] the expiry in ms that others must
--   allow for, ARGV[9] '1' if a tombstone stays too
-- ARGV[10] life of the mark in ms, or empty: no mark is left, ARGV[11] the mark

-- Ends or parks the token's lock, if it has it, and leaves the mark. Returns whether it did, what is at the key then, and the
-- answer if it did not. A copy of the request, sent on another connection, finds what the first one left.
local function give_up(token)
  local seen = peek()
  local again = parked(seen, token) or ARGV[10] ~= '' and try('GET', KEYS[8]) == ARGV[11]
  if not again and not ours(seen, token) and not broken(seen, token) then return false, seen, seen end
  if ours(seen, token) and ARGV[6] ~= '' or broken(seen, token) and ARGV[9] ~= '' then
    -- A server that is out of memory does what follows a write that needs none.
    call('PEXPIRE', KEY, ARGV[6])
    try('SET', KEY, ARGV[7], 'KEEPTTL')
    tell_end()
  elseif not again then
    call('DEL', KEY)
    seen = nil
  end
  if ARGV[10] ~= '' then call('SET', KEYS[8], ARGV[11], 'PX', ARGV[10]) end
  return true, seen
end
