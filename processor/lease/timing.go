package lease

import (
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// timing is how long everything takes.
type timing struct {
	beat      time.Duration // between two beats of an owner
	doubt     time.Duration // without its own beats, after which an owner has to verify
	silence   time.Duration // of the owner, after which a standby suspects it
	listen    time.Duration // for which a standby that stood still listens at least
	delay     time.Duration // between one rank and the next, if the owner is suspected
	freeDelay time.Duration // between one rank and the next, if the lease is free
	freeMost  time.Duration // for all ranks together, if the lease is free
	standBack time.Duration // that a standby waits longer, if another one is to take the shard
	start     time.Duration // that a process listens longer when it starts
	lost      time.Duration // that a standby listens longer after it lost its connection
	stall     time.Duration // a standby that stood still for so long does not count the time as silence
	poll      time.Duration // between two checks of the clocks, at most
	retry     time.Duration // after an error
	gap       time.Duration // between two reads, or verifications, because of unexpected beats
	call      time.Duration // for an answer of JetStream
	verify    time.Duration // for which OK and Fenced wait
	flush     time.Duration // until the server has what was published
	slow      time.Duration // after which work that does not end is logged
	refresh   time.Duration // between two refreshes of the entry
	away      time.Duration // since its last refresh, a member does not count as alive
	gone      time.Duration // since its last refresh, an owner deletes its entry
	settle    time.Duration // that a member has to run before an owner releases a shard for it
	again     time.Duration // between two releases, if the first one came back
	unfit     time.Duration // for which an owner has to be unfit before it releases its shards
}

// defaultTiming is the timing outside of tests. After unfit, the other members have said whether they are unfit too.
var defaultTiming = timing{
	beat:      100 * time.Millisecond,
	doubt:     400 * time.Millisecond,
	silence:   500 * time.Millisecond,
	listen:    200 * time.Millisecond,
	delay:     25 * time.Millisecond,
	freeDelay: 5 * time.Millisecond,
	freeMost:  25 * time.Millisecond,
	standBack: 500 * time.Millisecond,
	start:     100 * time.Millisecond,
	lost:      time.Second,
	stall:     200 * time.Millisecond,
	poll:      50 * time.Millisecond,
	retry:     250 * time.Millisecond,
	gap:       100 * time.Millisecond,
	call:      2 * time.Second,
	verify:    2 * time.Second,
	flush:     time.Second,
	slow:      10 * time.Second,
	refresh:   2 * time.Second,
	away:      8 * time.Second,
	gone:      5 * time.Minute,
	settle:    10 * time.Second,
	again:     time.Minute,
	unfit:     10 * time.Second,
}

// seams are what a test replaces when it makes a member: the times, the clock, and
// functions by which a loop stands still, a beat is lost or a read fails.
type seams struct {
	timing   timing
	clock    func() instant
	loop     func()               // runs in each round of the owner and the standby
	heart    func()               // runs before each beat, and when an owner hears one
	mute     func() bool          // true: the beat is not sent
	deaf     func(wire.Beat) bool // true: the beat is not heard
	readFail func() error         // an error fails a read of the lease
}

// noSeams replaces nothing.
func noSeams() seams {
	return seams{
		timing:   defaultTiming,
		clock:    systemClock(),
		loop:     func() {},
		heart:    func() {},
		mute:     func() bool { return false },
		deaf:     func(wire.Beat) bool { return false },
		readFail: func() error { return nil },
	}
}
