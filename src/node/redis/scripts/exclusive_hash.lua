-- Placed before release.lua where the exclusive lock has the form of Redisson's.

-- Ends the token's lock, tombstone or not, if it has it. Returns whether it did, what is at the key then, and the answer if it
-- did not.
local function give_up(token)
  local seen = peek()
  if not seen or seen[2] ~= 'hash' or call('HEXISTS', KEY, token .. ':1') == 0 then return false, seen, seen end
  call('DEL', KEY)
  tell_redisson()
  return true, nil
end
