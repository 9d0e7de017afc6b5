// Package processor applies the log to the store, and says what follows from it.
//
// The flow, file by file: a [Processor] provisions its streams and takes its
// partitions over (takeover.go); one consumer reads the log (consume.go, pull.go), decodes
// its messages (message.go), and puts each into the inbox of its partition (inbox.go).
// Each partition steps by itself (partition.go): it reads what the messages touch, or
// guesses that nothing of it is there, and decides (step.go, decide.go); it adds what is
// due, which was looked up before it was (reap.go, soon.go), more slowly while documents
// are read (turns.go), publishes what is to be said (publish.go, said.go) and commits it
// all at once. When there is nothing else to do it builds indexes (build.go). Any message
// of the log moves time on (clock.go); when the log is silent and something falls due, a
// tick is added (tick.go). Who asked is told the outcome (outcome.go).
//
// What it rests on:
//
//   - The log decides. A message's instant is its stamp, or that of an earlier
//     message of the log if that is later; clocks of processes decide nothing.
//   - Outputs first, then one atomic commit, fenced by the version of the state.
//     Outputs follow from the log alone, so a crash in between repeats only what
//     is recognised as said. The stream of events is fenced too: what a former owner
//     still has on its way is refused.
//   - Whatever fails, the partition is taken over anew, as if by another process:
//     there is one way to begin, and no other way to recover.
package processor
