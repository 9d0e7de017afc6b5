// Package fold decides what follows from the messages of the log: message, state and log time
// go in; outputs, outcomes and changes come out.
//
//	decode.go    a [Message], decoded as far as that depends on itself alone: it is valid, or it
//	             has the [Refusal] that will be its rejection
//	document.go  documents as JSON: validated, read
//	patch.go     documents that patches change: a step parses each once; bytes that no patch changes stay
//	progress.go  how far the log is applied: [Progress], and a [Position] in it
//	collections.go  what is known of each collection: [Collections]; change.go changes it
//	warn.go      which documents are to be warned of before they expire
//	due.go       the documents that are due next: [DueQueue]
//	reads.go     which documents a batch names, and which of their bodies it needs
//	decide.go    a [Decision] about some messages, and about due documents
//	headers.go   what the headers of a write ask of its clock, the limits of a ttl, the target of a message
//	outputs.go   the events, rejections and messages about changes that a decision publishes
//	configure.go what follows from configurations and drops, and which collections exist
//	entries.go   the entries of property indexes that a step adds and removes: X1 and X2
//	making.go    property indexes that are declared, made and removed while there are documents
//
// It is pure: no I/O, no clock, no goroutine (TestFoldIsPure). The same messages on the same
// documents have the same result however they are cut into batches, so a crash may cut them anew
// (TestG1_BatchBoundariesDoNotMatter). To add an operation, begin in [Decision.Apply].
//
// The owner of a shard makes a [Decision], reads the documents that [Decision.Name] returns and the bodies that
// [Decision.Lacking] names, applies the messages until the decision is [Decision.Full], and takes the outputs and
// [Decision.Changes]. [Configured] decides about configurations and drops, [Decision.Reap] which due documents are
// reaped beside the messages. Every takeover makes the state anew from what is stored.
//
// Whether a document is expired is decided in package ttlrules; this package only asks it. A write that keeps an older
// clock can come under the cut of a default that is no more. Then its version comes to a band of the index of its own
// (store.Config.Admit). In two cases [Decision.Apply] does nothing, and the owner first reaps what is due in the
// collection and settles its history: all [ttlrules.MaxBands] bands have documents, or the default was turned off in
// the very millisecond that is the deadline of a version with a ttl of its own.
package fold
