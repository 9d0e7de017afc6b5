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

-- Returns how many members of an index are at or under its cut, or are not after a place: a score
-- ('' for the beginning) and the id of a member, which need not exist. However many members share
-- the score, this takes a number of steps that grows with the logarithm of the size.
local function rank_after(key, cut, score, id)
	if score == '' or tonumber(score) < tonumber(cut) then
		return redis.call('ZCOUNT', key, '-inf', cut)
	end
	local low, high = redis.call('ZCOUNT', key, '-inf', '(' .. score), redis.call('ZCOUNT', key, '-inf', score)
	local under = redis.call('ZCOUNT', key, '-inf', cut)
	while low < high do
		local middle = math.floor((low + high) / 2)
		if before(id, redis.call('ZRANGE', key, middle, middle)[1]) then
			high = middle
		else
			low = middle + 1
		end
	end
	return math.max(low, under)
end

