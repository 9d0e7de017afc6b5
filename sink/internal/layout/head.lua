-- Shared by all scripts that begin their reply with a head. Go puts this text in front of
-- each of them. Head in head.go decodes the reply.

-- Returns what a reader judges a shard by, and with collection and docs (its name and
-- the key of its documents) the configuration and the size of that collection:
-- {time, fields of the state, configuration, number of documents, number of configurations}
local function head(state, config, collection, docs)
	return {
		redis.call('TIME'),
		redis.call('HMGET', state, 'version', 'format', 'shards', 'log', 'offset', 'watermark', 'rebuild', 'configs',
			'size:' .. (collection or '')),
		collection and redis.call('HGET', config, collection) or false,
		docs and redis.call('HLEN', docs) or 0,
		redis.call('HLEN', config),
	}
end

