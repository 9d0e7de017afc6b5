-- Reads documents of a collection, and what it takes to judge them.
--
-- KEYS  1 state, 2 config, 3 documents
-- ARGV  1 collection, then ids (up to 4000)
-- Returns  {head, {value, ...}}: false for a document that is not there. head is
--          {time, fields of state, configuration, number of documents,
--          number of configurations}.
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection = ARGV[1]
local head = {
	redis.call('TIME'),
	redis.call('HMGET', state, 'version', 'format', 'partitions', 'log', 'offset', 'watermark', 'rebuild', 'size:' .. collection, 'configs'),
	redis.call('HGET', config, collection),
	redis.call('HLEN', docs),
	redis.call('HLEN', config),
}
if #ARGV == 1 then
	return {head, {}}
end
return {head, redis.call('HMGET', docs, unpack(ARGV, 2))}
