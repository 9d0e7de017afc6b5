package fold

import (
	"github.com/seed18712806/lapse/sink/store"
)

// Position is a place in the log: the sequence of a message, and the log time there.
type Position struct {
	Seq   uint64
	Time  int64 // log time: the greatest stamp up to seq, Unix milliseconds
	Stamp int64 // of the message at seq itself, Unix nanoseconds; 0 if it is not known
	// Source is the sequence of the message in the stream of configurations, from which the
	// log has it; 0 if it is not from there.
	Source uint64
}

// Evidence is the stamp of the message at the position; it is zero if it is not known.
func (m Position) Evidence() store.Stamp {
	if m.Stamp == 0 {
		return store.Stamp{}
	}
	return store.Stamp{Seq: m.Seq, At: m.Stamp}
}
