-- Finds the documents that are at or under the cuts of their collections, lowest
-- score first, and what score comes next. Before that it notes how far the log
-- was applied, so that no reader is behind the events that follow from it.
--
-- KEYS  1 state, then per collection: documents, inherit, own
-- ARGV  1 version expected, 2 version to set ('' if there is nothing to note),
--       3 offset, 4 watermark, 5 rebuild, 6 the most documents to return,
--       7 the bytes of values after which no more is returned, 8 whether bodies are
--       wanted (1), then per collection: name, the cut of inherit and of own (''
--       for none)
-- Returns  {0} the version is another; {-2, n} the n-th collection is not as it was
--          left, so that what is due may not be found; or {1, per collection: {next inherit,
--          next own, ids, values}}: next is the lowest score that was not
--          returned, false if there is none; a value is false if the document is
--          not there.
local state = KEYS[1]
local expected, version, offset, watermark, rebuild = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, bytes, whole = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'
if redis.call('HGET', state, 'version') ~= expected then
	return {0}
end
for k = 2, #KEYS, 3 do
	local size = redis.call('HLEN', KEYS[k]) .. ' ' .. redis.call('ZCARD', KEYS[k + 1]) .. ' ' .. redis.call('ZCARD', KEYS[k + 2])
	if size ~= (redis.call('HGET', state, 'size:' .. ARGV[7 + k]) or '0 0 0') then
		return {-2, (k + 1) / 3}
	end
end
if version ~= '' then
	redis.call('HDEL', state, '') -- a Redis that is full lets no other write be the first: see commit.lua
	redis.call('HSET', state, 'version', version, 'offset', offset, 'watermark', watermark, 'rebuild', rebuild)
end
local out = {1}
local at = 9
local none = true -- no document was read yet
for k = 2, #KEYS, 3 do
	local nexts, ids, inherited = {}, {}, 0
	at = at + 1 -- the name
	for j = 1, 2 do
		local key, cut = KEYS[k + j], ARGV[at]
		at = at + 1
		local found = {}
		if cut ~= '' and limit > 0 then
			found = redis.call('ZRANGEBYSCORE', key, '-inf', cut, 'LIMIT', 0, limit)
			for i = 1, #found do
				ids[#ids + 1] = found[i]
			end
			limit = limit - #found
		end
		if j == 1 then
			inherited = #found
		end
		local after = redis.call('ZRANGE', key, #found, #found, 'WITHSCORES')
		nexts[j] = after[2] or false
	end
	local values = {}
	local from = 1 -- of what is still to be read
	while from <= #ids and (bytes > 0 or none) do
		local part = redis.call('HMGET', KEYS[k], unpack(ids, from, math.min(from + 31, #ids)))
		for i = 1, #part do
			if bytes <= 0 and not none then
				break
			end
			local v = part[i]
			if v and not whole then
				v = string.sub(v, 1, string.byte(v, 1))
			end
			bytes = bytes - (v and #v or 0)
			values[#values + 1] = v or false
			from = from + 1
			none = false
		end
	end
	if bytes <= 0 and not none then
		limit = 0
	end
	-- What was too much comes next.
	if from <= #ids then
		if from <= inherited then
			nexts[1] = redis.call('ZSCORE', KEYS[k + 1], ids[from])
		end
		if #ids > inherited then
			nexts[2] = redis.call('ZSCORE', KEYS[k + 2], ids[math.max(from, inherited + 1)])
		end
		for i = #ids, from, -1 do
			ids[i] = nil
		end
	end
	out[#out + 1] = {nexts[1], nexts[2], ids, values}
end
return out
