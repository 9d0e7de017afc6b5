-- Verifies that collections have as many documents and index members as the last commit left.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own
-- ARGV  per collection: name
-- Returns  {1, version} they have; {-1, version, n} the n-th key is of another type;
--          {-2, version, n} the n-th collection, or with 0 the configuration, is not as the
--          last commit left it.
local state, config, first_docs = KEYS[1], KEYS[2], 3
local version = redis.call('HGET', state, 'version')
local kind = redis.call('TYPE', config)
kind = kind.ok or kind
if kind ~= 'none' and kind ~= 'hash' then
	return {-1, version, 2}
end
if redis.call('HLEN', config) ~= tonumber(redis.call('HGET', state, 'configs') or 0) then
	return {-2, version, 0}
end
for c, name in ipairs(ARGV) do
	local k = first_docs + 3 * (c - 1)
	local docs, inherit, own = KEYS[k], KEYS[k + 1], KEYS[k + 2]
	for j = 0, 2 do
		local t = redis.call('TYPE', KEYS[k + j])
		t = t.ok or t
		if t ~= 'none' and t ~= (j == 0 and 'hash' or 'zset') then
			return {-1, version, k + j}
		end
	end
	local size = redis.call('HLEN', docs) .. ' ' .. redis.call('ZCARD', inherit) .. ' ' .. redis.call('ZCARD', own)
	if size ~= (redis.call('HGET', state, 'size:' .. name) or '0 0 0') then
		return {-2, version, c}
	end
end
return {1, version}
