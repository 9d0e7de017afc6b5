package wire

import "strconv"

// Member describes a process that serves a prefix. The process writes it every few seconds to
// the bucket [Prefix.MembersBucket], under the key "member.<id>".
type Member struct {
	Format  int    `json:"format"`  // see Format
	ID      string `json:"id"`      // unique to this run of the process
	Name    string `json:"name"`    // host and process id, for people
	Version string `json:"version"` // of lapse
	HTTP    string `json:"http,omitempty"`
	Started Time   `json:"started"`
	Seen    Time   `json:"seen"` // when this was written, by the process's own clock
	// Redis is the identity of the Redis that the process uses; empty while it is not known. All
	// processes of a prefix must use the same.
	Redis string `json:"redis,omitempty"`
	// Owns lists the shards that the process owns; none on a standby.
	Owns []int `json:"owns,omitempty"`
	// Following is how far the region is behind the one that it follows; nil if it follows none. Only of an owner.
	Following *Following `json:"following,omitempty"`
	// Problem is why the process is not ready; empty if it is.
	Problem string `json:"problem,omitempty"`
	// AwaitsPromotion means that the process has stopped because a promotion of its region has begun, and that Problem
	// follows from that alone.
	AwaitsPromotion bool `json:"awaitsPromotion,omitempty"`
	// Only of an owner: how far its logs are applied. If there are several shards, Applied and
	// LagMessages are sums, and Overdue is the greatest.
	Applied     uint64     `json:"applied,omitempty"`     // log sequence that was applied
	LagMessages uint64     `json:"lagMessages,omitempty"` // messages of the log that are not applied yet
	Overdue     float64    `json:"overdue,omitempty"`     // seconds since the oldest unpublished event fell due
	Retention   *Retention `json:"retention,omitempty"`   // if there is one shard
	// Shards has the same for each shard that the process owns, if there are several shards.
	Shards []ShardProgress `json:"shards,omitempty"`
}

// ShardProgress is how far the log of one shard is applied, in the terms of [Member].
type ShardProgress struct {
	Shard       int     `json:"shard"`
	Applied     uint64  `json:"applied"`
	LagMessages uint64  `json:"lagMessages"`
	Overdue     float64 `json:"overdue"`
	// Retention is absent until the owner knows it.
	Retention *Retention `json:"retention,omitempty"`
}

// Retention is what the owner of a shard knows of the shard's snapshots, and of bytes that should be
// gone.
type Retention struct {
	Snapshots int    `json:"snapshots"` // that count: two are wanted
	Offset    uint64 `json:"offset"`    // of the newest; 0 if there is none
	Taken     Time   `json:"taken,omitzero"`
	Documents uint64 `json:"documents"` // in the newest
	Bytes     uint64 `json:"bytes"`
	// Oldest is by place for how many seconds at most bytes are kept of a document that has expired, or
	// was deleted or overwritten; Within is the promise.
	Oldest map[string]float64 `json:"oldest"`
	Within float64            `json:"within"`
	// CleanSince is an instant for each place: a document that expired, or was deleted or overwritten, before it has
	// no bytes there. A place is absent if the owner does not know its instant.
	CleanSince map[string]Time `json:"cleanSince"`
}

// SnapshotOrder is a request to [Prefix.Snapshot]: for a snapshot of the shard, if
// Since is 0; else how far those are that the reply with this Since was about.
type SnapshotOrder struct {
	Since int64 `json:"since,omitempty"`
	// Forget orders to let go at once of what may go of all that died before Since.
	Forget bool `json:"forget,omitempty"`
}

// SnapshotReply is the reply to a [SnapshotOrder].
type SnapshotReply struct {
	Since   int64  `json:"since"`
	Done    bool   `json:"done"`              // a snapshot that was begun since then is stored
	Failure string `json:"failure,omitempty"` // why the last attempt has failed; there are more
	// Left are the places that may still have bytes of what died before Since, of an order to forget that is done; they
	// have none any more at Until.
	Left  []string `json:"left,omitempty"`
	Until Time     `json:"until,omitzero"`
}

// Lease names the process that owns a shard. It is stored in [Prefix.MembersBucket] under
// the key "lease.<shard>". An empty Owner means that the last owner has released it.
type Lease struct {
	Format int    `json:"format"` // see Format
	Owner  string `json:"owner"`  // Member.ID
	Name   string `json:"name"`   // Member.Name
	Since  Time   `json:"since"`
}

// Beat is what the owner of a shard publishes on [Prefix.Beat], ten times a second.
type Beat struct {
	Owner    string `json:"owner"`    // Member.ID
	Revision uint64 `json:"revision"` // of the lease in the bucket, as the owner knows it
	Seq      uint64 `json:"seq"`      // counts the owner's beats
	// Region is the JetStream domain of the member's bucket: the beats of another region, which a leaf node brings,
	// do not count.
	Region string `json:"region,omitempty"`
	// Released means that the owner has given the shard up: since Revision, the lease names
	// no owner.
	Released bool `json:"released,omitempty"`
}

// LeaseKey is the key of a shard's [Lease] in [Prefix.MembersBucket].
func LeaseKey(shard int) string { return "lease." + strconv.Itoa(shard) }

// MemberKey is the key of a [Member] in [Prefix.MembersBucket].
func MemberKey(id string) string { return "member." + id }
