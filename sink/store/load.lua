-- Loads the state and the configurations of a shard.
--
-- KEYS  1 state, 2 config
-- ARGV  none
-- Returns  {1, state, config}, both flat lists of field and value; or {-2, n, type} if the
--          n-th key is not a hash.
local state, config = KEYS[1], KEYS[2]
for n, key in ipairs({state, config}) do
	local kind = redis.call('TYPE', key)
	kind = kind.ok or kind
	if kind ~= 'none' and kind ~= 'hash' then
		return {-2, n, kind}
	end
end
return {1, redis.call('HGETALL', state), redis.call('HGETALL', config)}
