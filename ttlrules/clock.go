package ttlrules

// Clock is what a version of a document brings to the rules: when it was written, and how long it is to live.
type Clock struct {
	Ts  int64 // instant of the write, in Unix milliseconds
	TTL TTL   // the item's own

	// Kept is the instant from which the TTL counts, if that is not Ts. It is before Ts if the write has kept the clock
	// of the version before it, and after Ts if a read has renewed the version since. It is 0 if the TTL counts from
	// Ts.
	Kept int64
	// Absolute is the deadline that the write has named, in Unix milliseconds; 0 if it has
	// named none. It takes the place of the TTL.
	Absolute int64
	// NotAfter limits how long the TTL counts, in Unix milliseconds; 0 if there is no limit. The
	// sooner of both is the deadline. A version with an Absolute has no NotAfter.
	NotAfter int64
	// Limit is the instant from which the version is expired because of the maxLife of its collection, whatever it says
	// itself, in Unix milliseconds; 0 if there is none. A version that inherits has none: see [Clock.Within].
	Limit int64
	// ByDefault reports that TTL is the default at the instant at which the version was written or renewed.
	ByDefault bool

	Seq uint64 // log sequence of the write

	// Band is the band of the index of those that inherit the default in which the version is; 0 for nearly all of
	// them. See [History.Admits].
	Band int
}

const (
	// BandWidth is how far the scores of two bands are apart: more than any instant until 2109.
	BandWidth = 1 << 42
	// MaxBands is the greatest Band.
	MaxBands = 63
)

// Begin is the instant from which the TTL counts.
func (c Clock) Begin() int64 {
	if c.Kept != 0 {
		return c.Kept
	}
	return c.Ts
}

// Deadline is the deadline of the version under a default, or ok = false if it never expires: the matrix of the package
// doc. The version is expired from the later of that instant and its Ts.
//
// Deadline alone does not decide whether it is: an earlier default can have expired it.
func (c Clock) Deadline(d Default) (at int64, ok bool) {
	at, _, ok = c.ends(d)
	return at, ok
}

// ends is Deadline, with the TTL that counts in seconds: 0 if none does, because the write has named the instant.
func (c Clock) ends(d Default) (at int64, seconds int32, ok bool) {
	seconds = int32(max(c.TTL, 0))
	last := sooner(c.NotAfter, c.Limit)
	switch {
	case d == Off:
		return 0, 0, false
	case c.Absolute != 0:
		return sooner(c.Absolute, c.Limit), 0, true
	case seconds == 0 && last != 0:
		return last, 0, true
	case c.TTL == Inherit:
		seconds = int32(max(d, 0))
	}
	at = c.Begin() + int64(seconds)*1000
	if last != 0 && last < at {
		return last, 0, true
	}
	return at, seconds, seconds != 0
}

// sooner is the sooner of two instants, of which 0 is none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Slides reports whether a read at an instant renews the clock of a version with a deadline, in a
// collection that slides on reads: more than a part of the TTL has passed, so that reads renew it 1/part
// times a TTL at most, and the deadline would move. An absolute deadline does not slide, nor does one
// that is NotAfter or Limit. No part (0) is that of a collection that does not slide.
func (c Clock) Slides(deadline, now int64, part float64) bool {
	return part > 0 && c.Absolute == 0 && deadline != sooner(c.NotAfter, c.Limit) &&
		float64(now-c.Begin()) > part*float64(deadline-c.Begin())
}

// Slid is the version after a read has renewed its clock at an instant. All else stays: the version is still that of
// its last write.
func (c Clock) Slid(at int64) Clock {
	c.Kept, c.Band = at, 0
	if at == c.Ts {
		c.Kept = 0
	}
	return c
}

// Index names the expiry index that a version belongs in.
type Index int

const (
	// NotIndexed is for versions that never expire.
	NotIndexed Index = iota
	// ByInherit is for versions that inherit the default TTL.
	ByInherit
	// ByOwn is for versions with a TTL or an instant of their own.
	ByOwn
)

// Score is the score of the version in the index that it belongs in. A version that inherits has the beginning of its
// clock, in its band; else the score is the instant from which the version is expired while TTL is on.
func (c Clock) Score() (score int64, in Index) {
	switch named := c.Absolute != 0 || c.NotAfter != 0 || c.Limit != 0; {
	case !named && c.TTL == Never:
		return 0, NotIndexed
	case !named && c.TTL == Inherit:
		return int64(c.Band)*BandWidth + c.Begin(), ByInherit
	}
	at, _ := c.Deadline(NoDefault)
	return max(at, c.Ts), ByOwn
}

// Band is the band in which a score of the index is.
func (in Index) Band(score int64) int {
	if in != ByInherit {
		return 0
	}
	return int(score / BandWidth)
}

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

// Keeps reports whether what a version says of its own time to live keeps to limits in seconds, of which 0 is none. A
// version that inherits keeps to them, as the default does. Of an absolute deadline the distance from Ts counts.
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
