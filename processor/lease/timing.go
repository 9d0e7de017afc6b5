package lease

import (
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// timing is how long everything takes.
type timing struct {
	beat   time.Duration // between two beats of an owner
	doubt  time.Duration // without its own beats, after which an owner has to verify
	watch  terms         // of a standby
	start  time.Duration // that a process listens longer when it starts
	lost   time.Duration // that a standby listens longer after it lost its connection
	stall  time.Duration // a standby that stood still for so long does not count the time as silence
	poll   time.Duration // between two checks of the clocks, at most
	retry  time.Duration // after an error
	gap    time.Duration // between two reads, or verifications, because of unexpected beats
	call   time.Duration // for an answer of JetStream
	verify time.Duration // for which OK and Fenced wait
	flush  time.Duration // until the server has what was published
	slow   time.Duration // after which work that does not end is logged
	share  shareTerms
	roster Terms
}

// shareTerms are when a process hands a shard over.
type shareTerms struct {
	every     time.Duration // between two decisions
	calm      time.Duration // since the last change of an owner
	keep      time.Duration // since it took the shard
	keepGiven time.Duration // the same, if the shard was handed over to it
	unfit     time.Duration // for which it must have been unfit. By then others have said so too.
	hangs     time.Duration // after which an owner that is unfit hands over before its work has ended
}

var defaultTiming = timing{
	beat:   100 * time.Millisecond,
	doubt:  400 * time.Millisecond,
	watch:  terms{silence: 500 * time.Millisecond, listen: 200 * time.Millisecond, delay: 25 * time.Millisecond, freeDelay: 5 * time.Millisecond, freeMost: 25 * time.Millisecond, grace: 500 * time.Millisecond, unfit: time.Second},
	start:  100 * time.Millisecond,
	lost:   time.Second,
	stall:  200 * time.Millisecond,
	poll:   50 * time.Millisecond,
	retry:  250 * time.Millisecond,
	gap:    100 * time.Millisecond,
	call:   2 * time.Second,
	verify: 2 * time.Second,
	flush:  time.Second,
	slow:   10 * time.Second,
	share:  shareTerms{every: 500 * time.Millisecond, calm: time.Second, keep: 10 * time.Second, keepGiven: time.Minute, unfit: 10 * time.Second, hangs: 2 * time.Second},
	roster: Terms{Refresh: 2 * time.Second, Away: 8 * time.Second, Gone: 5 * time.Minute, Settle: 10 * time.Second, Well: 3 * time.Second, Doubt: time.Minute},
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
	view     func(*view)          // changes what the process knows of the others
}

func noSeams() seams {
	return seams{
		timing:   defaultTiming,
		clock:    systemClock(),
		loop:     func() {},
		heart:    func() {},
		mute:     func() bool { return false },
		deaf:     func(wire.Beat) bool { return false },
		readFail: func() error { return nil },
		view:     func(*view) {},
	}
}
