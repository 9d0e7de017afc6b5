package ttlrules

// Within is the default as it counts for documents with one version, in a collection whose documents live maxLife
// seconds at most; 0 is no such limit. It is what the [History] of such a collection has. So a document that was
// written once expires by a cut, and a changed maxLife counts for it at once.
func (d Default) Within(maxLife int32) Default {
	if maxLife == 0 || d == Off || d > 0 && d <= Default(maxLife) {
		return d
	}
	return Default(maxLife)
}

// Within is a version that is written or renewed at an instant, in a collection whose documents live maxLife seconds
// at most, and whose configured default is d. The document was created at an instant, not after the beginning of the
// clock. c is the version as it is without a maxLife.
//
// No score tells both when a clock began and when a document was created. So a version that inherits, and whose clock
// began later, takes the default as its own TTL ([Clock.ByDefault]), until it is renewed again: a changed default or
// maxLife counts for it from then on.
func (c Clock) Within(maxLife int32, d Default, created, at int64) Clock {
	if maxLife == 0 || d == Off {
		return c
	}
	plain := c.Absolute == 0 && c.NotAfter == 0
	switch {
	case plain && created >= c.Begin() && (c.TTL == Inherit || c.TTL > 0 && int32(c.TTL) <= maxLife):
		return c
	case plain && c.TTL == Inherit:
		c.TTL, c.ByDefault = TTL(d), true
	}
	c.Limit = max(created+int64(maxLife)*1000, at)
	return c
}
