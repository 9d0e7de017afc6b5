package ttlrules

// Keeps reports whether what a version says of its own time to live keeps to limits in seconds, of which 0
// is none. A version that inherits keeps to them, as the default does. Of an absolute deadline the distance
// from Ts counts.
func (c Clock) Keeps(least, most int32) bool {
	length := int64(c.TTL) * 1000
	switch {
	case c.Absolute != 0:
		length = c.Absolute - c.Ts
	case c.TTL == Inherit, c.ByDefault:
		return true
	case c.TTL == Never:
		return most == 0
	}
	return (least == 0 || length >= int64(least)*1000) && (most == 0 || length <= int64(most)*1000)
}
