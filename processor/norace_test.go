//go:build !race

package processor

const raceEnabled = false

// slower is how many times as long a test gives writes that have to come before a deadline.
const slower = 2
