-- Verifies that collections have as many documents and index members as they were
-- left with.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own
-- ARGV  per collection: name
-- Returns  {1, version} as they should be; {-1, version, n} the n-th key is not of
--          its type; {-2, version, n} the n-th collection, or with 0 the configuration,
--          is not as it was left.
local state, config = KEYS[1], KEYS[2]
local version = redis.call('HGET', state, 'version')
local kind = redis.call('TYPE', config)
kind = kind.ok or kind
if kind ~= 'none' and kind ~= 'hash' then
	return {-1, version, 2}
end
if redis.call('HLEN', config) ~= tonumber(redis.call('HGET', state, 'configs') or 0) then
	return {-2, version, 0}
end
local c = 0
for k = 3, #KEYS, 3 do
	c = c + 1
	for j = 0, 2 do
		local t = redis.call('TYPE', KEYS[k + j])
		t = t.ok or t
		if t ~= 'none' and t ~= (j == 0 and 'hash' or 'zset') then
			return {-1, version, k + j}
		end
	end
	local size = redis.call('HLEN', KEYS[k]) .. ' ' .. redis.call('ZCARD', KEYS[k + 1]) .. ' ' .. redis.call('ZCARD', KEYS[k + 2])
	if size ~= (redis.call('HGET', state, 'size:' .. ARGV[c]) or '0 0 0') then
		return {-2, version, c}
	end
end
return {1, version}
