-- Sets `redis`, made of the functions that the server has, and returns the function that runs a script.
-- `describe` turns an error into the table that redis.pcall would return, `explain` adds the script's line to it.
-- Lua's own pcall returns the text of a command's error, as in Redis.
-- call and check are no functions of Lua: a script may end in a tail call of them, and must still be on the stack.
local call, quiet, check, describe, explain = ...

redis = {call = call, pcall = quiet, acl_check_cmd = check}

local unsafe = pcall
local function settle(succeeded, ...)
  if succeeded then return true, ... end
  local error = describe((...))
  return false, type(error) == 'table' and error.err or error
end
function pcall(...) return settle(unsafe(...)) end

return function(script) return xpcall(script, explain) end
