// Package ttlrules holds every rule about time to live (TTL) as pure functions:
// time is an argument, nothing is read or written, and only the standard library
// is imported. The rules are those of Azure Cosmos DB, with one more: expired is
// final.
//
// Start at [ParseTTL] and [ParseDefault], which parse what clients send, and at
// [History], which decides: [History.Expired] and [History.ExpiredAt] for one document,
// [History.Cuts] for all documents at once. [Deadline] alone does not decide whether a
// document is expired, since an earlier default can have expired it.
//
// When an item expires, by its own ttl (rows) and its collection's default
// (columns); _ts is the instant of its last write:
//
//	              off      -1          n
//	absent, null  never    never       _ts + n
//	-1            never    never       never
//	m             never    _ts + m     _ts + m
//
// Instants are Unix milliseconds, TTLs whole seconds. A document's index score is
// its _ts if it inherits, and _ts + m if it has a TTL of its own; one with -1 is in
// no index. A score does not depend on the default, so changing the default moves
// the cuts and no document.
//
// Invariants:
//
//   - I1: a document is expired from the instant its deadline is reached
//     (deadline <= now).
//   - I2: expired is final: a document that was expired under a default that was
//     current then stays expired under every later default.
//   - I3: a document is expired at an instant exactly if its index score is at
//     or under the cut of that instant ([History.Cuts]).
//   - I4: [History.Settled] changes nothing for a document that is not expired,
//     now or under any change to come.
package ttlrules
