-- Verifies that collections have as many documents and index members as the last commit left.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own; then the property indexes
-- ARGV  1 the number of collections, then per collection: name; then per property index: the field of
--       the state that holds how many entries it has
-- Returns  {1, version} they have; {-1, version, n} the n-th key is of another type;
--          {-2, version, n} the n-th collection, or with 0 the configuration, is not as the
--          last commit left it; {-3, version, n} the n-th key does not have its entries.
local state, config, first_docs = KEYS[1], KEYS[2], 3
local collections, first_name = tonumber(ARGV[1]), 2
local first_index, first_entries = first_docs + 3 * collections, first_name + collections
local version = redis.call('HGET', state, 'version')
local kind = redis.call('TYPE', config)
kind = kind.ok or kind
if kind ~= 'none' and kind ~= 'hash' then
	return {-1, version, 2}
end
if redis.call('HLEN', config) ~= tonumber(redis.call('HGET', state, 'configs') or 0) then
	return {-2, version, 0}
end
for c = 1, collections do
	local name = ARGV[first_name + c - 1]
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
for k = first_index, #KEYS do
	local entries = redis.pcall('ZCARD', KEYS[k])
	if type(entries) ~= 'number' then
		return {-1, version, k}
	end
	if entries ~= tonumber(redis.call('HGET', state, ARGV[first_entries + k - first_index]) or 0) then
		return {-3, version, k}
	end
end
return {1, version}
