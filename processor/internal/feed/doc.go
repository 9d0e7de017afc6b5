// Package feed reads the log once, for all partitions, and keeps log time.
//
// A [Reader] pulls messages from the stream (pull.go), computes log time (logtime.go), and
// puts each message into the [Inbox] of its partition, or into all inboxes (reading.go). For a
// partition that falls behind, or has to go back, a reading of its own runs until it has caught up
// (catchup.go), so it holds up no other. A [ClockGuard] stops the reading at a stamp that
// leads all other clocks. A [Ticker] wakes partitions at the instants that they wait for,
// and appends a tick if the log is silent by then.
//
// This package reads the log and appends ticks to it. It touches neither Redis (but for
// its clock) nor the stream of events, and it knows nothing of documents.
package feed
