// Package pauses lets a goroutine of lapse stand still in front of any statement, while all
// others go on, as on a machine that is too busy. Command insert writes a copy of lapse with a
// call of [Here] in front of each statement; lapse itself knows nothing of it.
//
// Some limits of lapse, such as the number of messages in a step, are low in some histories: see
// [Limit].
//
// A goroutine does not stand still while one holds a mutex: synctest lets no time pass while
// another one waits for that.
package pauses

import (
	"math/rand/v2"
	"time"
)

// often: a goroutine stands still in front of a slow statement once in so many times.
const often = 6

// One history runs at a time, and one goroutine of it: tests set GOMAXPROCS to 1.
var (
	random *rand.Rand // nil: no goroutine stands still
	slow   uint64     // one statement in so many is slow in this history
	which  uint64     // decides which ones are
	held   int        // mutexes that are locked or waited for
	stood  int        // times that a goroutine stood still

	limits []limit
)

// limit is a variable that has one of two values in a history.
type limit struct {
	at         *int
	usual, low int
}

// Limit names a limit. In one history of three it has another value than the usual one.
func Limit(at *int, low int) { limits = append(limits, limit{at, *at, low}) }

// Begin lets goroutines stand still from here on, and sets the limits, as a seed says. With some
// seeds none stands still.
func Begin(seed uint64) {
	random, held, stood = rand.New(rand.NewPCG(seed, 2)), 0, 0
	which = random.Uint64()
	for _, l := range limits {
		if *l.at = l.usual; random.IntN(3) == 0 {
			*l.at = l.low
		}
	}
	if slow = []uint64{0, 15, 100}[random.IntN(3)]; slow == 0 {
		random = nil
	}
}

// End lets all go on without pauses. It returns how often a goroutine stood still.
func End() int {
	random = nil
	return stood
}

// Here is in front of a statement, which has a number.
func Here(statement uint64) {
	if random == nil || held > 0 || (which^statement)*0x9e3779b97f4a7c15>>32%slow != 0 || random.IntN(often) > 0 {
		return
	}
	stood++
	most := []time.Duration{time.Millisecond, 50 * time.Millisecond, 2 * time.Second}[random.IntN(3)]
	time.Sleep(time.Duration(random.Int64N(int64(most))))
}

// Hold is in front of a statement that locks a mutex.
func Hold() { held++ }

// Free is behind a statement that unlocks a mutex.
func Free() { held-- }
