// Package lease decides which of the processes that serve a prefix owns a shard.
//
// Make a [Member] with [New], and give [Member.Run] the work of an owner. Run calls it for
// as long as this process owns the shard. The work asks its [Held] before each step.
//
// Each shard has a lease in a key-value bucket of JetStream ([wire.Prefix.MembersBucket]).
// It changes only by compare-and-set on its revision. The owner publishes a beat on a plain
// NATS subject ([wire.Prefix.Beat]) every 100 ms. The other processes are standbys: they
// listen, and take the lease when it is released or its owner is silent. A beat shows that
// the owner is alive. Only the bucket decides which process is the owner.
//
// The flow, file by file: a member joins (lease.go, shard.go), stands by (standby.go; it
// decides in watch.go) and owns (owner.go), while it beats (pulse.go, which also decides whether
// the owner's proof still holds). share.go decides which member is to have a shard: purely, so that
// members that see the same come to the same result. roster.go keeps the entries of the members,
// bucket.go stores leases and entries, and link.go follows the connection.
//
// What it promises:
//
//   - One owner. If several processes want a lease at the same time, one gets it. The work of
//     two runs at the same time only if a standby suspected the former owner wrongly, and then
//     until the former owner verifies.
//   - Verification. To verify is to renew: a compare-and-set in the bucket, which fails if
//     another process has the lease. [Held.Fenced] never returns nil after another has taken it.
//   - Fresh proof. An owner that has not heard a beat of its own for 400 ms has to verify before
//     the work goes on. The age of a beat counts from its sending, by the monotonic and the wall
//     clock. So a process that was stopped, or whose machine was suspended, verifies first.
//     A lost connection has the same effect.
//   - Takeover. The first standby takes over after 500 ms of silence, each next one 25 ms later.
//     After its own connection was lost a standby waits for 1.5 s, since the owner may be
//     back later. A time in which it stood still is no silence, and it listens for 200 ms
//     after that. So it also takes over on a machine that makes it stand still again and
//     again. A former owner does not take the lease back while the new one beats.
//   - Clean end. An owner that is told to stop says so in its entry, ends its work, releases the
//     lease and publishes that in a beat. The first standby takes over at once, the last within
//     25 ms; one that would have two shards more than another half a second later.
//   - Start. A process that starts takes a free lease at once. It takes the lease of another
//     after 600 ms of silence, or at once if it was told not to wait.
//   - Recreation. If somebody deletes the bucket or a lease in it, the owner creates it again and
//     goes on. If the owner is silent too, a standby does.
//   - Entries. Each process refreshes its entry in the bucket every 2 s, and removes it at its
//     end. An owner deletes the entries of processes that have been gone for 5 minutes.
//     [Member.Stored] tells whether JetStream stored the last refresh.
//   - Endurance. Each call to NATS has a limit of a few seconds. After a member has joined, no
//     failure of NATS ends Run. Only this process does, when it closes the connection.
//   - Spread. A shard without an owner is taken by the member without a problem that has the
//     fewest shards. If a member has two shards fewer than another, the one with the most
//     releases one, about every 2 s: once the member has run for 10 s, has no problem, and all
//     members have refreshed their entries since a shard changed its owner last. So nobody
//     releases a shard for a member that has died. The former owner takes the shard back if
//     nobody else does for half a second, and then releases none for a minute. The only shard does not move.
//   - Unfit owner. An owner that could not work for 10 s ([Options].Unfit) has said so in its
//     entry. It releases its shards, although its work may hang, if another member has no
//     problem. If all have one, nothing moves. A standby that cannot work waits for half a second
//     longer if another one can.
//
// It does not promise safety: a process may be suspended between [Held.OK] and its next
// action. The fences in Redis and in the stream of events refuse what a former owner does,
// so the lease can afford to suspect quickly. And it trusts the subject of beats and the
// bucket: do not let clients publish there.
package lease
