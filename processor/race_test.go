//go:build race

package processor

// raceEnabled: under the race detector everything takes ten times as long.
const raceEnabled = true

// slower is how many times as long a test gives writes that have to come before a deadline.
const slower = 4
