-- Finds the documents that are at or under the cuts of their collections, lowest
-- score first, and what score comes next.
--
-- KEYS  1 state, then per collection: documents, inherit, own
-- ARGV  1 version expected, 2 the most documents to return, 3 the bytes of values after
--       which no more is returned, 4 whether bodies are wanted (1), 5 number of
--       collections n, then the n fields of the state with their sizes, then per
--       collection: the cut of inherit and of own ('' for none)
-- Returns  {0} the version is another; {-2, n} the n-th collection is not as it was
--          left, so that what is due may not be found; or {1, time, per collection: {next
--          inherit, next own, ids, values, left}}: next is the lowest score that was not
--          returned, false if there is none; a value is false if the document is
--          not there; left is how many are under the cuts and were not returned.
local call, state = redis.call, KEYS[1]
local limit, bytes, whole = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local collections = tonumber(ARGV[5])
local left = call('HMGET', state, 'version', unpack(ARGV, 6, 5 + collections))
if left[1] ~= ARGV[1] then
	return {0}
end
for c = 1, collections do
	local k = 3 * c - 1
	local size = call('HLEN', KEYS[k]) .. ' ' .. call('ZCARD', KEYS[k + 1]) .. ' ' .. call('ZCARD', KEYS[k + 2])
	if size ~= (left[1 + c] or '0 0 0') then
		return {-2, c}
	end
end

-- Returns the ids in an index up to a cut, the lowest score that is left, and how
-- many of them are left.
local function under(key, cut)
	local ids, n, left = {}, 0, 0
	if cut ~= '' and limit > 0 then
		ids = call('ZRANGEBYSCORE', key, '-inf', cut, 'LIMIT', 0, limit)
		n = #ids
		limit = limit - n
	end
	if cut ~= '' and limit == 0 then
		left = call('ZCOUNT', key, '-inf', cut) - n
	end
	return ids, n, call('ZRANGE', key, n, n, 'WITHSCORES')[2] or false, left
end
local out = {1, call('TIME')}
local at = 6 + collections
local none = true -- no document was read yet
for c = 1, collections do
	local k = 3 * c - 1
	local ids, inherited, next_inherit, left_inherit = under(KEYS[k + 1], ARGV[at])
	local others, owned, next_own, left_own = under(KEYS[k + 2], ARGV[at + 1])
	at = at + 2
	if inherited == 0 then
		ids = others
	else
		for i = 1, owned do
			ids[inherited + i] = others[i]
		end
	end
	local n = inherited + owned
	local values = {}
	local from = 1 -- of what is still to be read
	while from <= n and (bytes > 0 or none) do
		local part = call('HMGET', KEYS[k], unpack(ids, from, math.min(from + 31, n)))
		for i = 1, #part do
			if bytes <= 0 and not none then
				break
			end
			local v = part[i]
			if v and not whole then
				v = string.sub(v, 1, string.byte(v, 1))
			end
			bytes = bytes - (v and #v or 0)
			values[from] = v or false
			from = from + 1
			none = false
		end
	end
	if bytes <= 0 and not none then
		limit = 0
	end
	-- What was too much comes next.
	if from <= n then
		if from <= inherited then
			next_inherit = call('ZSCORE', KEYS[k + 1], ids[from])
		end
		if owned > 0 then
			next_own = call('ZSCORE', KEYS[k + 2], ids[math.max(from, inherited + 1)])
		end
		for i = n, from, -1 do
			ids[i] = nil
		end
	end
	out[c + 2] = {next_inherit, next_own, ids, values, left_inherit + left_own + n - from + 1}
end
return out
