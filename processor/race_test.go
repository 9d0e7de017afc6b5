//go:build race

package processor

// Under the race detector everything takes ten times as long.
const raceEnabled = true
