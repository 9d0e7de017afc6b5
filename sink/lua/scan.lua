-- Scans a chunk of a collection's documents.
--
-- KEYS  1 state, 2 config, 3 documents
-- ARGV  1 collection, 2 cursor, 3 how many to look at, 4 whether bodies are wanted (1)
-- Returns  {head, server, next cursor, {id, value, ...}}: head as in get.lua;
--          server names the process that the cursor is good for ('' if unknown).
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection, cursor, count, whole = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local head = {
	redis.call('TIME'),
	redis.call('HMGET', state, 'version', 'format', 'partitions', 'log', 'offset', 'watermark', 'rebuild', 'size:' .. collection, 'configs'),
	redis.call('HGET', config, collection),
	redis.call('HLEN', docs),
	redis.call('HLEN', config),
}
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local page = redis.call('HSCAN', docs, cursor, 'COUNT', count)
local values = page[2]
if not whole then
	for i = 2, #values, 2 do
		values[i] = string.sub(values[i], 1, string.byte(values[i], 1))
	end
end
return {head, server, page[1], values}
