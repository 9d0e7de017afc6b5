package ttlrules

// WarnAt is the instant at which a version is to be warned of, some seconds before its deadline, where
// that is asked for since an instant, and how the version expires. ok = false if there is no warning:
//
//   - the version has no deadline under the current default;
//   - the instant is not after the version was written or renewed, or not after the change that made the
//     deadline or the seconds count;
//   - the version has expired by then, under a default before this one.
//
// The caller has published what an earlier configuration asked for before it applied this one.
func (h History) WarnAt(c Clock, before int32, since int64) (at int64, x Expiry, ok bool) {
	if len(h) == 0 {
		return 0, x, false
	}
	current := h[len(h)-1]
	deadline, expires := c.Deadline(current.Default)
	at = deadline - int64(before)*1000
	if !expires || at <= max(c.Ts, c.Begin(), since, current.Since) {
		return 0, x, false
	}
	x, _ = h.ExpiredAt(c)
	return at, x, at < x.At
}

// WarnShift is the distance, in milliseconds, from the score of a version in an index to the instant at
// which it is to be warned of under the current default: so the versions that are to be warned of
// between two instants are a slice of the index. ok = false if no version in that index expires.
func (h History) WarnShift(in Index, before int32) (shift int64, ok bool) {
	shift = -int64(before) * 1000
	switch d := h.Current(); {
	case d == Off, in == NotIndexed:
		return 0, false
	case in == ByOwn:
		return shift, true
	default:
		return shift + int64(d)*1000, d > 0
	}
}
