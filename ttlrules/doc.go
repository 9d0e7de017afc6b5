// Package ttlrules holds every rule about time to live (TTL) as pure functions: time is an argument, nothing is read or
// written, and only the standard library is imported. The rules are those of Azure Cosmos DB, with one more: expired is
// final.
//
// Start at [ParseTTL] and [ParseDefault], which parse what clients send, and at [History], which decides:
// [History.Expired] and [History.ExpiredAt] for one version of a document, given by its [Clock], and [History.Cuts] for
// all documents at once. [Clock.Deadline] alone does not decide whether a document is expired, since an earlier default
// can have expired it.
//
// The deadline of an item, by its own ttl (rows) and its collection's default
// (columns); _ts is the instant of its last write:
//
//	              off      -1          n
//	absent, null  never    never       _ts + n
//	-1            never    never       never
//	m             never    _ts + m     _ts + m
//	absolute D    never    D           D
//
// A version may have a NotAfter too, an instant that limits its ttl: then the deadline is the
// sooner of both, and without a ttl m it is NotAfter.
//
// A collection may have a maxLife, by which its documents expire at the latest so many seconds after they were created,
// whatever renews them ([Clock.Within], [Default.Within]).
//
// A write may keep the clock of the version before it: then the TTL counts from where that began, in place of _ts. A
// version is expired from the later of its deadline and its _ts, since a kept clock, or a deadline that passed while
// TTL was off, can be run out when the version is written. A read may renew the clock of a version, which is else left
// as it is ([Clock.Slides]): then the TTL counts from that read.
//
// Instants are Unix milliseconds, TTLs whole seconds. A document's index score is the beginning of its clock if it
// inherits, and the later of deadline and _ts if it has a TTL or an instant of its own; one with -1 is in no index
// ([Clock.Score]). A score does not depend on the default, so changing the default moves the cuts and no document.
//
// A kept clock can begin before epochs that ended before the version was written. Their cuts must not expire it. So the
// index of those that inherit has bands: such a version has a higher score, in a band for which only the epochs since
// then count ([History.Admits], [History.From]).
//
// Invariants:
//
//   - reached: a document is expired from the instant its deadline is reached (deadline <= now).
//   - final: expired is final: a document that was expired under a default that was
//     current then stays expired under every later default.
//   - cuts: a document that the history admitted is expired at an instant from its _ts on
//     exactly if its index score is at or under the cut of that instant ([History.Cuts]), in its band.
//   - settled: [History.Settled] changes nothing for a document that is not expired, now or under any change to come.
package ttlrules
