-- Notes the sizes of collections of a shard that was filled.
--
-- KEYS  1 state, then per collection: documents, inherit, own
-- ARGV  1 the expected version, then per collection: the field of the state that holds its sizes
-- Returns  {1, documents, n, ...}: how many documents the collections have, and the n-th ones are
--          empty; {0} the shard is at another version.
local call, state, version, first_size = redis.call, KEYS[1], ARGV[1], 2
if call('HGET', state, 'version') ~= version then
	return {0}
end
local documents, sizes, reply = 0, 0, {1, 0}
for c = 1, #ARGV - 1 do
	local k, field = 3 * c - 1, ARGV[first_size + c - 1]
	local docs, inherit, own = call('HLEN', KEYS[k]), call('ZCARD', KEYS[k + 1]), call('ZCARD', KEYS[k + 2])
	documents = documents + docs
	if docs + inherit + own > 0 then
		sizes = sizes + call('HSET', state, field, docs .. ' ' .. inherit .. ' ' .. own)
	else
		reply[#reply + 1] = c
	end
end
if sizes > 0 then
	call('HSET', state, 'sizes', (tonumber(call('HGET', state, 'sizes') or 0) or 0) + sizes)
end
reply[2] = documents
return reply
