-- Reads the documents that a batch of messages touches.
--
-- KEYS  1 state, then the documents of one collection per key
-- ARGV  per key of documents: the number of ids of which the header is enough,
--       the number of ids to be read whole, then those ids in that order
-- Returns  {version, value, ...}: false for a document that is not there.
local state = KEYS[1]
local out, n = {redis.call('HGET', state, 'version')}, 1
local at = 1
for k = 2, #KEYS do
	local headers, whole = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
	at = at + 2
	local last = at + headers + whole - 1
	local first_whole = at + headers
	while at <= last do
		local to = math.min(at + 3999, last)
		local values = redis.call('HMGET', KEYS[k], unpack(ARGV, at, to))
		for i = 1, to - at + 1 do
			local v = values[i]
			if v and at + i - 1 < first_whole then
				v = string.sub(v, 1, string.byte(v, 1))
			end
			n = n + 1
			out[n] = v or false
		end
		at = to + 1
	end
end
return out
