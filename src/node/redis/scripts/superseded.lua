-- Placed behind enter.lua and newest.lua, before acquire.lua or join.lua, where the waiter has --supersede.
-- The last of ARGV is its 'CAME WAITER'. A waiter that came before another one gets no place: {'superseded', waiter}.
-- A place that it has got and only moves is not taken from it (ARGV[15] of join.lua).
local newer = ARGV[15] ~= '1' and supersede(ARGV[#ARGV], ARGV[4], ARGV[9])
if newer then
  drop(waiter)
  -- It may have been told that it is its turn.
  if not seen then offer() end
  return reply({'superseded', newer})
end
