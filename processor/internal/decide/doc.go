// Package decide decides what follows from messages: message, state and log time go in;
// outputs, outcomes and changes come out.
//
// It is pure: no I/O, no clock, no goroutine. The same messages on the same documents have
// the same result however they are cut into batches, so a crash may cut them anew
// (TestG1_BatchBoundariesDoNotMatter). To add an operation, begin in [Decision.Apply].
//
// The owner makes a [Decision], reads the documents that [Decision.Name] returns, applies
// the messages, and takes the outputs and [Decision.Changes]. [Configured] decides about
// configurations and drops, [Decision.Reap] which due documents are reaped beside the
// messages.
//
// Whether a document is expired is decided in package ttlrules; this package only asks it.
package decide
