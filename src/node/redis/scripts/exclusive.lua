-- Placed before release.lua where the lock is exclusive.

-- Ends the token's lock, if it has it. Returns whether it did, what is at the key then, and the answer if it did not.
local function give_up(token)
  local seen = peek()
  if not ours(seen, token) and not broken(seen, token) then return false, seen, seen end
  call('DEL', KEY)
  return true, nil
end
