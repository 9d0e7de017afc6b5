// Package state holds what the owner of a partition remembers between steps: how far the log
// is applied ([Progress], A1 to A4), what is known of each collection ([Collections], K1 to
// K4), and the documents that are due next ([DueQueue]).
//
// It is made of plain data structures: no I/O, no clock, no goroutine. Every takeover makes
// them anew from the stored state.
package state
