// Package announce publishes each output of a partition once, and tells clients and the
// next owner about it.
//
// An [Announcer] belongs to one partition. It publishes expiry events and rejections to the
// stream of events, behind a fence: a message of the partition's own in that stream, which
// every publication names. The stream refuses a publication that names an older fence, so a
// former owner can publish nothing. [Published] (N1 to N3) knows which outputs may have been
// published before. Of those the Announcer publishes the ones that the tail of the stream does not
// have: the partitions of a shard read that once, from their checkpoints to their fences.
//
// A [Checkpointer] stores, once a second, up to which position in the log all outputs of
// each partition are published, and where the stream of events has them. With that the next owner
// finds out whether the stream has lost some. [Outcomes] sends the clients their outcomes after the
// commit, and again for a while if nobody listens yet.
//
// This package touches the stream of events, the bucket of checkpoints and the inboxes of
// clients. It touches neither Redis nor the log.
package announce
