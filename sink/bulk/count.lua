-- Notes the sizes of collections of a partition that was filled.
--
-- KEYS  1 state, then per collection: documents, inherit, own
-- ARGV  1 the expected version, then per collection: the field of the state that holds its sizes
-- Returns  {1, n}: the collections have n documents; {0} the partition is at another version.
local call, state, version, first_size = redis.call, KEYS[1], ARGV[1], 2
if call('HGET', state, 'version') ~= version then
	return {0}
end
local documents, sizes = 0, 0
for c = 1, #ARGV - 1 do
	local k, field = 3 * c - 1, ARGV[first_size + c - 1]
	local docs, inherit, own = call('HLEN', KEYS[k]), call('ZCARD', KEYS[k + 1]), call('ZCARD', KEYS[k + 2])
	documents = documents + docs
	if docs + inherit + own > 0 then
		sizes = sizes + call('HSET', state, field, docs .. ' ' .. inherit .. ' ' .. own)
	end
end
if sizes > 0 then
	call('HSET', state, 'sizes', (tonumber(call('HGET', state, 'sizes') or 0) or 0) + sizes)
end
return {1, documents}
