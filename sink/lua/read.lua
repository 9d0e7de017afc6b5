-- Reads the documents that a batch of messages touches.
--
-- KEYS  1 state, then the documents of one collection per key
-- ARGV  per key of documents: the name, the number of ids of which the header is
--       enough, the number of ids to be read whole, then those ids in that order
-- Returns  {version, 0, value, ...}: false for a document that is not there; or
--          {version, n}: the n-th collection has not as many documents as it was
--          left with, so that one that is not there may have been lost.
local state = KEYS[1]
local fields = {'version'}
local at = 1
for k = 2, #KEYS do
	fields[k] = 'size:' .. ARGV[at]
	at = at + 3 + tonumber(ARGV[at + 1]) + tonumber(ARGV[at + 2])
end
local left = redis.call('HMGET', state, unpack(fields))
local out, n = {left[1], 0}, 2
at = 1
for k = 2, #KEYS do
	local headers, whole = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
	at = at + 3
	if string.match(left[k] or '0', '^%d+') ~= tostring(redis.call('HLEN', KEYS[k])) then
		return {left[1], k - 1}
	end
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
