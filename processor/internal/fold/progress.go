package fold

import (
	"cmp"
	"strconv"

	"github.com/seed18712806/lapse/sink/store"
)

// Progress is how far a shard has applied the log, how much of that is committed to
// Redis, and which version of the stored state the owner computes from.
//
//   - behind: committed is never ahead of applied, neither the offset nor the watermark.
//   - nothing between: between committed and applied the log has nothing that changes the stored
//     documents: only time and messages that change nothing have passed.
//   - forward: applied only goes back in Resume, which follows a takeover.
//   - versions: no two commits have the same version: a version is a random text of the takeover and a count.
type Progress struct {
	Offset    uint64
	Watermark int64       // log time at the offset
	Stamp     store.Stamp // of the last message that has moved the offset or the watermark, as far as stamps are known
	Rebuild   uint64      // the offset below which documents are missing; 0 if none are
	// Configured is the sequence of the stream of configurations up to which that is applied; 0 if there is one shard.
	Configured uint64

	CommittedOffset    uint64 // of the stored state
	CommittedWatermark int64  // of the stored state
	committedEvents    string // see store.State

	Version   string // of the stored state: the fence in Redis
	attempted string // version that the last commit sets, in case its reply is lost
	nonce     string
	commits   uint64
}

// Here is the applied position, without a stamp.
func (p *Progress) Here() Position { return Position{Seq: p.Offset, Time: p.Watermark} }

// StampAt is what Stamp will be at a position.
func (p *Progress) StampAt(to Position) store.Stamp {
	if stamp := to.Evidence(); stamp.Seq > p.Stamp.Seq {
		return stamp
	}
	return p.Stamp
}

// Saw notes a message that moves the watermark before it moves the offset.
func (p *Progress) Saw(at Position) { p.Stamp = p.StampAt(at) }

// OutOfTurn reports whether a message of the stream of configurations does not count: a message
// before it is not applied yet, or it is applied already. So all shards apply that stream in one
// order and without a gap, whatever their logs have got of it.
func (p *Progress) OutOfTurn(m *Message) bool {
	return m.Source > 0 && m.Source != p.Configured+1
}

// IsCommitted reports whether everything that was applied is committed.
func (p *Progress) IsCommitted() bool {
	return p.Offset == p.CommittedOffset && p.Watermark == p.CommittedWatermark
}

// Attempted reports whether the last commit that was tried sets a version.
func (p *Progress) Attempted(version string) bool { return version != "" && p.attempted == version }

// Claim begins the versions of a takeover, and returns the first. nonce is a text that no other takeover has.
func (p *Progress) Claim(nonce string) string {
	p.nonce, p.commits = nonce, 0
	p.Version = p.nonce + "-claim"
	return p.Version
}

// Cleared is the version with which a load begins.
func (p *Progress) Cleared() string { return p.nonce + "-cleared" }

// Claimed is the version with which a takeover ends.
func (p *Progress) Claimed() string { return p.nonce + "-0" }

// Advance moves the applied position on.
func (p *Progress) Advance(to Position) {
	p.Offset, p.Watermark = to.Seq, to.Time
	p.Configured = max(p.Configured, to.Source)
	p.Saw(to)
}

// Next is what a commit that moves on to a position stores. events is where the stream of events has the last output.
func (p *Progress) Next(to Position, events string) store.Progress {
	p.commits++
	next := store.Progress{
		Version:   p.Version,
		Next:      p.nonce + "-" + strconv.FormatUint(p.commits, 10),
		Offset:    to.Seq,
		Watermark: to.Time,
		Stamp:     p.StampAt(to),
	}
	if to.Source > p.Configured {
		next.Configured = to.Source
	}
	if to.Seq < p.Rebuild {
		next.Rebuild = p.Rebuild
	}
	if events != p.committedEvents {
		next.Events = events
	}
	return next
}

// Attempt notes the version that the commit about to be made sets.
func (p *Progress) Attempt(version string) { p.attempted = version }

// Committed notes that a commit has taken effect. The caller advances the position.
func (p *Progress) Committed(pr store.Progress) {
	p.Version, p.Rebuild = pr.Next, pr.Rebuild
	p.CommittedOffset, p.CommittedWatermark = pr.Offset, pr.Watermark
	p.committedEvents = cmp.Or(pr.Events, p.committedEvents)
}

// Resume goes on from a stored state that this process has taken over.
func (p *Progress) Resume(s store.State, version string, rebuild uint64) {
	p.Version, p.Rebuild, p.Stamp = version, rebuild, s.Stamp
	p.Offset, p.CommittedOffset = s.Offset, s.Offset
	p.Configured = s.Configured
	p.Watermark, p.CommittedWatermark = s.Watermark, s.Watermark
	p.committedEvents = s.Events
}

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
