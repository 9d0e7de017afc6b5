-- Loads the state and the configuration of a partition.
--
-- KEYS  1 state, 2 config
-- ARGV  none
-- Returns  {1, all of state, all of config} (flat lists of field and value), or
--          {-2, n, type} if the n-th key is not a hash.
local keys = KEYS
for n = 1, 2 do
	local kind = redis.call('TYPE', keys[n])
	kind = kind.ok or kind
	if kind ~= 'none' and kind ~= 'hash' then
		return {-2, n, kind}
	end
end
return {1, redis.call('HGETALL', keys[1]), redis.call('HGETALL', keys[2])}
