package fold

import (
	"cmp"
	"strconv"

	"github.com/seed18712806/lapse/sink/store"
)

// Progress is how far a shard has applied the log, how much of that is committed to
// Redis, and which version of the stored state the owner computes from.
//
//   - A1: committed is never ahead of applied, neither the offset nor the watermark.
//   - A2: between committed and applied the log has nothing that changes the stored
//     documents: only time and messages that change nothing have passed.
//   - A3: applied only goes back in Resume, which follows a takeover.
//   - A4: no two commits have the same version: a version is a random text of the
//     takeover and a count.
type Progress struct {
	offset    uint64
	watermark int64
	stamp     store.Stamp // of the last message that has moved offset or watermark, if its stamp is known
	rebuild   uint64      // the offset below which documents are missing; 0 if none are
	// configured is the sequence of the stream of configurations up to which that is applied;
	// 0 if there is one shard.
	configured uint64

	committedOffset    uint64
	committedWatermark int64
	committedEvents    string // see store.State

	version   string // of the stored state
	attempted string // version that the last commit sets, in case its reply is lost
	nonce     string
	commits   uint64
}

// Offset is the sequence of the log up to which the shard has applied it.
func (p *Progress) Offset() uint64 { return p.offset }

// Watermark is the log time at the offset.
func (p *Progress) Watermark() int64 { return p.watermark }

// Here is the applied position, without a stamp.
func (p *Progress) Here() Position { return Position{Seq: p.offset, Time: p.watermark} }

// Stamp is the stamp of the last message that has moved the offset or the watermark, as far as stamps
// are known.
func (p *Progress) Stamp() store.Stamp { return p.stamp }

// StampAt is what Stamp will be at a position.
func (p *Progress) StampAt(to Position) store.Stamp {
	if stamp := to.Evidence(); stamp.Seq > p.stamp.Seq {
		return stamp
	}
	return p.stamp
}

// Saw notes a message that moves the watermark before it moves the offset.
func (p *Progress) Saw(at Position) { p.stamp = p.StampAt(at) }

// Configured is the sequence of the stream of configurations up to which that is applied.
func (p *Progress) Configured() uint64 { return p.configured }

// OutOfTurn reports whether a message of the stream of configurations does not count: a message
// before it is not applied yet, or it is applied already. So all shards apply that stream in one
// order and without a gap, whatever their logs have got of it.
func (p *Progress) OutOfTurn(m *Message) bool {
	return m.Source > 0 && m.Source != p.configured+1
}

// Rebuild is the offset below which documents are missing; 0 if none are.
func (p *Progress) Rebuild() uint64 { return p.rebuild }

// Version is the version of the stored state: the fence in Redis.
func (p *Progress) Version() string { return p.version }

// CommittedOffset is the offset of the stored state.
func (p *Progress) CommittedOffset() uint64 { return p.committedOffset }

// CommittedWatermark is the watermark of the stored state.
func (p *Progress) CommittedWatermark() int64 { return p.committedWatermark }

// IsCommitted reports whether everything that was applied is committed.
func (p *Progress) IsCommitted() bool {
	return p.offset == p.committedOffset && p.watermark == p.committedWatermark
}

// Attempted reports whether the last commit that was tried sets a version.
func (p *Progress) Attempted(version string) bool { return version != "" && p.attempted == version }

// Claim begins the versions of a takeover, and returns the first. nonce is a text that no other takeover has.
func (p *Progress) Claim(nonce string) string {
	p.nonce, p.commits = nonce, 0
	p.version = p.nonce + "-claim"
	return p.version
}

// Cleared is the version with which a load begins.
func (p *Progress) Cleared() string { return p.nonce + "-cleared" }

// Claimed is the version with which a takeover ends.
func (p *Progress) Claimed() string { return p.nonce + "-0" }

// Advance moves the applied position on.
func (p *Progress) Advance(to Position) {
	p.offset, p.watermark = to.Seq, to.Time
	p.configured = max(p.configured, to.Source)
	p.Saw(to)
}

// Next is what a commit that moves on to a position stores. events is where the stream of events has
// the last output.
func (p *Progress) Next(to Position, events string) store.Progress {
	p.commits++
	next := store.Progress{
		Version:   p.version,
		Next:      p.nonce + "-" + strconv.FormatUint(p.commits, 10),
		Offset:    to.Seq,
		Watermark: to.Time,
		Stamp:     p.StampAt(to),
	}
	if to.Source > p.configured {
		next.Configured = to.Source
	}
	if to.Seq < p.rebuild {
		next.Rebuild = p.rebuild
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
	p.version, p.rebuild = pr.Next, pr.Rebuild
	p.committedOffset, p.committedWatermark = pr.Offset, pr.Watermark
	p.committedEvents = cmp.Or(pr.Events, p.committedEvents)
}

// Resume goes on from a stored state that this process has taken over.
func (p *Progress) Resume(s store.State, version string, rebuild uint64) {
	p.version, p.rebuild, p.stamp = version, rebuild, s.Stamp
	p.offset, p.committedOffset = s.Offset, s.Offset
	p.configured = s.Configured
	p.watermark, p.committedWatermark = s.Watermark, s.Watermark
	p.committedEvents = s.Events
}
