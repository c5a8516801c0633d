-- Placed behind redisson.lua, before the scripts that delete a lock of any form.
local function delete()
  call('DEL', KEY)
  if hashed then tell_redisson() end
end
