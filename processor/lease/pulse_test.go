package lease

import (
	"testing"
	"time"
)

// at is a clock that a test moves.
type at struct{ instant }

func (c *at) pass(d time.Duration) { c.Mono += d; c.Wall += d }

func newTestPulse() (*at, *pulse) {
	c := &at{instant{Mono: time.Hour, Wall: 1000 * time.Hour}}
	p := newPulse(func() instant { return c.instant }, 400*ms)
	p.Renewed(p.Renew())
	return c, p
}

// Fails if within ignores one of the clocks, or compares by <=.
func TestAProofHoldsForItsLimitByBothClocks(t *testing.T) {
	for name, tt := range map[string]struct {
		mono, wall time.Duration
		good       bool
	}{
		"at once":                       {0, 0, true},
		"just within":                   {399 * ms, 399 * ms, true},
		"at the limit":                  {400 * ms, 400 * ms, false},
		"stopped":                       {time.Minute, time.Minute, false},
		"suspended: only the wall":      {5 * ms, time.Minute, false},
		"the wall clock was set back":   {5 * ms, -time.Minute, false},
		"the wall clock was set a bit":  {5 * ms, -3 * ms, true},
		"only the monotonic clock ages": {500 * ms, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, p := newTestPulse()
			c.Mono += tt.mono
			c.Wall += tt.wall
			if p.Good() != tt.good {
				t.Errorf("good is %t", p.Good())
			}
		})
	}
}

// Fails if a beat counts from when it is heard.
func TestABeatProvesTheInstantAtWhichItWasSent(t *testing.T) {
	c, p := newTestPulse()
	c.pass(300 * ms)
	first := p.Beat()
	c.pass(10 * ms)
	p.Heard(first)
	c.pass(380 * ms) // 390 ms after it was sent, 690 after the renewal
	if !p.Good() {
		t.Fatal("the beat does not count")
	}
	p.Renewed(p.Renew())
	second := p.Beat()
	c.pass(390 * ms) // the beat lies in a buffer
	p.Heard(second)
	c.pass(20 * ms)
	if p.Good() {
		t.Error("a beat counts from when it was heard")
	}
}

// Fails if Heard does not compare a beat with the proof before it.
func TestAGapIsRememberedUntilARenewal(t *testing.T) {
	c, p := newTestPulse()
	c.pass(time.Minute)
	beat := p.Beat() // the first after the process went on
	c.pass(ms)
	p.Heard(beat)
	if p.Good() {
		t.Fatal("beats count across a gap")
	}
	beat = p.Beat()
	p.Heard(beat)
	if p.Good() {
		t.Fatal("the gap is forgotten")
	}
	p.Renewed(p.Renew())
	if !p.Good() {
		t.Error("a renewal does not end the doubt")
	}
}

// Fails if Renewed does not compare the doubts.
func TestARenewalDoesNotEndADoubtThatCameAfterItBegan(t *testing.T) {
	_, p := newTestPulse()
	r := p.Renew()
	p.Doubt() // the connection was lost
	p.Renewed(r)
	if p.Good() {
		t.Error("the renewal ended the doubt")
	}
}

func TestABeatThatWasSentBeforeARenewalDoesNotTakeItBack(t *testing.T) {
	c, p := newTestPulse()
	c.pass(100 * ms)
	old := p.Beat()
	c.pass(299 * ms)
	p.Renewed(p.Renew())
	p.Heard(old)
	p.Heard(old)
	p.Heard(12345) // of nobody
	c.pass(200 * ms)
	if !p.Good() {
		t.Error("the renewal is forgotten")
	}
}

// Fails if a renewal counts from its answer: another process may have taken the lease since the question.
func TestL3_ARenewalProvesTheInstantOfItsQuestion(t *testing.T) {
	c, p := newTestPulse()
	r := p.Renew()
	c.pass(390 * ms)
	p.Renewed(r)
	if c.pass(9 * ms); !p.Good() {
		t.Error("the renewal does not count")
	}
	if c.pass(ms); p.Good() {
		t.Error("the renewal counts from its answer")
	}
}
