-- Placed behind members.lua, before the scripts that end a lock of any kind.

-- Ends the token's lock, if it has it. Returns whether it did, what is at the key then, and the answer if it did not.
local function give_up(token)
  local seen = peek()
  if marker(seen) then
    sweep()
    if not entry(token) then return false, peek(), nil end
    take_out(token)
    span()
    return true, peek()
  end
  if not ours(seen, token) and not broken(seen, token) and not parked(seen, token) then return false, seen, seen end
  call('DEL', KEY)
  return true, nil
end
