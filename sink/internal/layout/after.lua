-- Shared by the scripts that go through an index in order. Go puts this text in front of them.

-- Reports whether a text comes before another one, byte by byte, as Redis orders members: the
-- operator < goes by the locale.
local function before(a, b)
	for i = 1, math.min(#a, #b) do
		local x, y = string.byte(a, i), string.byte(b, i)
		if x ~= y then
			return x < y
		end
	end
	return #a < #b
end

-- Returns how many members of an index are not after a place: a score ('' for the beginning) and the id of
-- a member, which need not exist ('' for all with the score). However many members share the score, this
-- takes a number of steps that grows with the logarithm of the size.
local function rank_after(key, score, id)
	if score == '' then
		return 0
	end
	local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
	local high = id == '' and low or redis.call('ZCOUNT', key, '-inf', score)
	while low < high do
		local middle = math.floor((low + high) / 2)
		if before(id, redis.call('ZRANGE', key, middle, middle)[1]) then
			high = middle
		else
			low = middle + 1
		end
	end
	return low
end
