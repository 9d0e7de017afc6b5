package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// RegionKey is the key of a [Region] in the metadata of a log, or of [Prefix.ConfigStream].
const RegionKey = "lapse-region"

// FollowerKey is the key in [Prefix.MembersBucket] of a region that follows this one, by its JetStream domain. The
// stamp of the entry says when that region has last asked. The entry itself has the version of its format alone.
func FollowerKey(domain string) string { return "follower." + domain }

// RegionRequest is what lapse in one region asks of lapse in another one, at [Prefix.Region]. It asks one thing.
type RegionRequest struct {
	// Follower is the JetStream domain of the region that asks, if that follows this one: lapse remembers it.
	Follower string `json:"follower,omitempty"`
	// Supersede asks the region to be the first no longer: its streams take no more messages. It is by the Promotion
	// of the region that asks, which knows the first region as the one whose log has the Identity.
	Supersede *Promotion `json:"supersede,omitempty"`
	Identity  int64      `json:"identity,omitempty"`
	// Reopen asks the region to be the first again that was superseded by this Promotion, which is undone.
	Reopen *Promotion `json:"reopen,omitempty"`
}

// End is the last message of a stream, zero if it has none.
type End struct {
	Seq   uint64 `json:"seq"`
	Stamp int64  `json:"stamp"` // Unix nanoseconds
}

// RegionReply is the reply to a [RegionRequest].
type RegionReply struct {
	// Error is why the request was not carried out; empty if it was.
	Error string `json:"error,omitempty"`
	// Superseded is what this region was superseded by, before or by the request; nil if it is not.
	Superseded *Promotion `json:"superseded,omitempty"`
	// Ends are the last messages of the streams that were superseded. Nothing is stored behind them.
	Ends map[string]End `json:"ends,omitempty"`
}

// Region says what a log has to do with the logs of other regions. The stream of events that belongs to it,
// and the snapshots, are the same as it is: mirrors or not.
type Region struct {
	// Identity of the log: that of the log which it mirrors. A promotion gives it another one.
	Identity int64 `json:"identity,omitempty"`
	// Follows is the JetStream domain of the first region, while the log is a mirror.
	Follows string `json:"follows,omitempty"`
	// Former are the logs that this one continues, the oldest first.
	Former []Former `json:"former,omitempty"`
	// Promotion has begun and not ended; nil if none has.
	Promotion *Promotion `json:"promotion,omitempty"`
	// Superseded by another region, which is the first now; nil if it is not.
	Superseded *Promotion `json:"superseded,omitempty"`
}

// Former is a log up to where another one continues it.
type Former struct {
	Identity int64  `json:"identity"`
	Last     uint64 `json:"last"`            // sequence of the log
	Stamp    int64  `json:"stamp,omitempty"` // of that message, Unix nanoseconds
	Events   uint64 `json:"events"`          // last sequence of the stream of events then
	Promotion
}

// Promotion is how a region became the first.
type Promotion struct {
	Identity int64     `json:"becomes,omitempty"` // of the log from then on
	Domain   string    `json:"domain"`            // JetStream domain of the region that became the first
	From     string    `json:"from"`              // that of the region that was the first
	At       time.Time `json:"at"`
	By       string    `json:"by"` // who, for a person to read
	// Drain: the region that was the first is asked to hand over.
	Drain bool `json:"drain,omitempty"`
}

// String is how a person reads it.
func (p Promotion) String() string {
	return fmt.Sprintf("at %s by %s, in the JetStream domain %q", p.At.UTC().Format(time.RFC3339), p.By, p.Domain)
}

// ParseRegion reads the metadata of a stream. It is zero for a log that has nothing to do with other regions.
func ParseRegion(metadata map[string]string) (r Region, err error) {
	text := metadata[RegionKey]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Region{}, fmt.Errorf("its %s is %s, which is not valid", RegionKey, Quote(text))
	}
	return r, nil
}

// String writes what ParseRegion reads.
func (r Region) String() string {
	text, _ := json.Marshal(r) // of this type it cannot fail
	return string(text)
}

// Following is how far a region that follows another one is behind it.
type Following struct {
	Domain string `json:"domain"` // JetStream domain of the first region
	// Behind is the number of messages of its log that are not applied here, as far as is known.
	Behind uint64 `json:"behind"`
	// AsOf: everything that the first region had stored by then is applied here; zero if that is not known.
	AsOf Time `json:"asOf,omitzero"`
	// Down is since when the first region does not answer; zero while it does.
	Down Time `json:"downSince,omitzero"`
}

// Further adds up how far shards are behind: the messages of all, and the time of the one that is furthest behind. Each
// may be nil.
func Further(all, one *Following) *Following {
	switch {
	case one == nil:
		return all
	case all == nil:
		return one
	}
	sum := *all
	sum.Behind += one.Behind
	sum.AsOf = min(all.AsOf, one.AsOf) // zero is not known
	if one.Down != 0 && (all.Down == 0 || one.Down < all.Down) {
		sum.Down = one.Down
	}
	return &sum
}

// Staleness is how far the documents are behind those of the first region; ok is false if that is not known.
func (f Following) Staleness(now time.Time) (d time.Duration, ok bool) {
	return max(0, now.Sub(time.UnixMilli(int64(f.AsOf)))), f.AsOf != 0
}

// String is how a person reads it.
func (f Following) String() string {
	text := fmt.Sprintf("follows the region %q, %d messages behind", f.Domain, f.Behind)
	if d, ok := f.Staleness(time.Now()); ok {
		text += fmt.Sprintf(", as it was %s ago", d.Round(100*time.Millisecond))
	} else {
		text += ", and has not reached it yet"
	}
	if f.Down != 0 {
		text += ", which does not answer since " + f.Down.String()
	}
	return text
}
