// Package region lets a region follow another one, which is the first.
//
// NATS mirrors the log, the stream of events and the snapshots of the first region; the follower folds the
// mirror of the log into a Redis of its own. It appends nothing and publishes nothing. A [Follower] does what
// the mirrors do not:
//
//	follower.go  the loop: it asks the first region for a cut, and adopts the cut
//	adopt.go     what a cut is, and what of it is stored here; whether the first region has published an
//	             output: a shard that follows waits for that before it commits ([shard.Mirror])
//	diverge.go   whether the mirrors still have what the first region has
//
// A cut is what the first region has: where its streams begin and end, its checkpoints, and the records of its
// snapshots. It is adopted once all mirrors have reached the ends that were asked for after all else. So
// what the bucket of checkpoints of this region names is in the streams of this region, always:
//
//   - M1: a shard commits past an output only when the stream of events here has it, or a
//     checkpoint that was adopted says that it was published.
//   - M2: a checkpoint, or the record of a snapshot, is stored here only when log, events and snapshots here
//     reach what they name.
//   - M3: the log here is truncated only as far as the first region has truncated its own, and only behind
//     what the shard here has applied, or what the adopted records of snapshots continue.
//
// Therefore a takeover here examines what it examines in the first region, and a promotion needs nothing but the
// streams' configurations: the region is what the first one was a moment ago.
package region
