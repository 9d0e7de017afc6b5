package ttlrules

// Clock is what a version of a document brings to the rules: when it was written, and how
// long it is to live.
type Clock struct {
	Ts  int64 // instant of the write, in Unix milliseconds
	TTL TTL   // the item's own

	// Kept is the instant from which the TTL counts, if the write has kept the clock of the
	// version before it; 0 if the TTL counts from Ts. It is never after Ts.
	Kept int64
	// Absolute is the deadline that the write has named, in Unix milliseconds; 0 if it has
	// named none. It takes the place of the TTL.
	Absolute int64

	Seq uint64 // log sequence of the write
}

// Begin is the instant from which the TTL counts.
func (c Clock) Begin() int64 {
	if c.Kept != 0 {
		return c.Kept
	}
	return c.Ts
}

// Deadline is the deadline of the version under a default, or ok = false if it never
// expires: the matrix of the package doc. The version is expired from the later of that
// instant and its Ts.
//
// Deadline alone does not decide whether it is: an earlier default can have expired it.
func (c Clock) Deadline(d Default) (at int64, ok bool) {
	switch {
	case d == Off:
		return 0, false
	case c.Absolute != 0:
		return c.Absolute, true
	}
	n := c.seconds(d)
	return c.Begin() + int64(n)*1000, n != 0
}

// Slides reports whether a read at an instant renews the clock of a version with a deadline, in a
// collection that slides on reads: more than a tenth of the TTL has passed, so that reads renew it ten
// times a TTL at most. An absolute deadline does not slide.
func (c Clock) Slides(deadline, now int64) bool {
	return c.Absolute == 0 && 10*(now-c.Begin()) > deadline-c.Begin()
}

// seconds is the TTL that counts under a default; 0 if none does.
func (c Clock) seconds(d Default) int32 {
	switch {
	case d == Off || c.Absolute != 0 || c.TTL == Never:
		return 0
	case c.TTL != Inherit:
		return int32(c.TTL)
	case d == NoDefault:
		return 0
	default:
		return int32(d)
	}
}

// Index names the expiry index that a version belongs in.
type Index int

const (
	// NotIndexed is for versions that never expire.
	NotIndexed Index = iota
	// ByInherit is for versions that inherit the default TTL.
	ByInherit
	// ByOwn is for versions with a TTL or an absolute deadline of their own.
	ByOwn
)

// Score is the score of the version in the index that it belongs in. A version that
// inherits has the beginning of its clock; else the score is the instant from which the
// version is expired while TTL is on.
func (c Clock) Score() (score int64, in Index) {
	switch {
	case c.Absolute == 0 && c.TTL == Never:
		return 0, NotIndexed
	case c.Absolute == 0 && c.TTL == Inherit:
		return c.Begin(), ByInherit
	}
	at, _ := c.Deadline(NoDefault)
	return max(at, c.Ts), ByOwn
}
