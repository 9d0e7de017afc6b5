-- Reads documents of a collection.
--
-- KEYS  1 state, 2 config, 3 documents
-- ARGV  1 collection, then ids (up to 4000)
-- Returns  {head, {value, ...}}: head as in head.lua; a value is false if the document does
--          not exist.
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection = ARGV[1]
local reply_head = head(state, config, collection, docs)
if #ARGV == 1 then
	return {reply_head, {}}
end
return {reply_head, redis.call('HMGET', docs, unpack(ARGV, 2))}
