// Package lease decides which of the processes that serve a prefix owns a shard.
//
// Make a [Member] with [New], and give [Member.Run] the [Work] of an owner. Run calls it for
// as long as this process owns the shard. The work asks its [Held] before each step.
//
// Each shard has a lease in a key-value bucket of JetStream ([wire.Prefix.MembersBucket]).
// It changes only by compare-and-set on its revision. The owner publishes a beat on a plain
// NATS subject ([wire.Prefix.Beat]) every 100 ms. The other processes are standbys: they
// listen, and take the lease when it is released or its owner is silent. A beat shows that
// the owner is alive. Only the bucket decides which process is the owner.
//
// The flow, file by file: a member joins (lease.go, shard.go), stands by (standby.go; it
// decides in watch.go) and owns (owner.go), while it beats (heart.go), answers the work
// (held.go) and hands shards over (handover.go). pulse.go decides whether the owner's proof
// still holds, and share.go which member is to own which shard: purely, so that members that see the
// same come to the same result. roster.go keeps the entries of the members, bucket.go stores leases
// and entries, and link.go follows the connection.
//
// What it promises:
//
//   - L1. If several processes want a lease at the same time, one gets it. The work of two
//     runs at the same time only if a standby suspected the former owner wrongly, and then
//     until the former owner verifies.
//   - L2. To verify is to renew: a compare-and-set in the bucket, which fails if another
//     process has the lease. [Held.Fenced] never returns nil after another has taken it.
//   - L3. An owner that has not heard a beat of its own for 400 ms has to verify before the
//     work goes on. The age of a beat counts from its sending, by the monotonic and the wall
//     clock. So a process that was stopped, or whose machine was suspended, verifies first.
//     A lost connection has the same effect.
//   - L4. The first standby takes over after 500 ms of silence, each next one 25 ms later.
//     After its own connection was lost a standby waits for 1.5 s, since the owner may be
//     back later. A time in which it stood still is no silence, and it listens for 200 ms
//     after that. So it also takes over on a machine that makes it stand still again and
//     again. A former owner does not take the lease back while the new one beats.
//   - L5. An owner that is told to stop ends its work, releases the lease and publishes that
//     in a beat. The first standby takes over at once, the last within 25 ms.
//   - L6. A process that starts takes a free lease at once. It takes the lease of another
//     after 600 ms of silence, or at once if it was told not to wait.
//   - L7. If somebody deletes the bucket or a lease in it, the owner creates it again and
//     goes on. If the owner is silent too, a standby does.
//   - L8. Each process refreshes its entry in the bucket every 2 s, and removes it at its
//     end. An owner deletes the entries of processes that have been gone for 5 minutes.
//     [Member.Stored] tells whether JetStream stored the last refresh.
//   - L9. Each call to NATS has a limit of a few seconds. After a member has joined, no
//     failure of NATS ends Run. Only this process does, when it closes the connection.
//   - L10. Each shard has an order of the members, by rendezvous hashing. In the order of their
//     numbers, each shard goes to the first member in its order that has room. That depends on
//     the members alone, so all compute the same. No member has two shards more than another,
//     and a member that joins or leaves moves few shards of the others. A shard without an
//     owner is taken by the member to which it is to go, then by the others in its order, and
//     last by those with a problem. An owner hands a shard over to the member to which it is to
//     go, once that has been listed for 10 s, without a problem for 3 s, and all shards have had
//     owners for a second. Such a member counts, and each that owns a shard. There are no other
//     moves, and none of the only shard.
//   - L11. An owner that hands a shard over ends its work, and names its successor in the
//     lease and in a beat. The successor takes over at once, and nobody else for 500 ms. Then
//     the others do, as after any release, and the former owner last. A process that leaves says
//     so in its entry before it releases a lease, and an owner reads the entry of the successor
//     before it hands over.
//   - L12. No two processes take a shard from each other in turns. Members that see the same
//     move each shard once. Else an owner keeps a shard for at least 10 s, and for a minute if
//     it was handed over. That bounds what lists that differ and members that come and go can
//     do. A member that has lost or left a shard, or did not take one, gets none for a minute.
//   - L13. An owner that could not work for 10 s ([Options].Unfit) says so in its entry, and hands
//     its shards over to members without a problem, although its work may hang. The minute of
//     L12 does not hold that up. If all have the problem, nothing moves. A standby that cannot work
//     waits for a second longer if another one can.
//
// It does not promise safety: a process may be suspended between [Held.OK] and its next
// action. The fences in Redis and in the stream of events refuse what a former owner does,
// so the lease can afford to suspect quickly. And it trusts the subject of beats and the
// bucket: do not let clients publish there.
package lease
