package simulation

import (
	"time"

	"github.com/seed18712806/lapse/integration/simulation/observer"
	"github.com/seed18712806/lapse/sink/wire"
)

// secondRests reports whether the second region has come to rest: it has all that the first has.
func (w *World) secondRests() bool {
	far := w.second
	if far == nil {
		return true
	}
	if _, final := far.host.state(); final != nil {
		return true
	}
	if ended, _ := far.ended(); !ended {
		return false
	}
	o, proc := far.observer, far.host.processor()
	if proc == nil || proc.Ready() != nil || o.Owes() || o.Incomplete() != nil || o.Unreadable() != nil ||
		w.lacks(observer.Log) || w.lacks(observer.Events) {
		return false
	}
	if far.promoted && (len(o.Compare(wire.Time(time.Now().UnixMilli()))) > 0) {
		return false
	}
	log := far.nats.Stream(observer.Log)
	return log != nil && appliedIn(far.redis) >= log.LastSeq()
}

// ended reports whether a promotion has ended that has begun.
func (s *second) ended() (bool, error) {
	if s.operator == nil {
		return true, nil
	}
	ended, err := s.operator.state()
	return ended && s.promoted, err
}

// judgeSecond checks the second region at the end of a history.
func (w *World) judgeSecond() {
	far := w.second
	o := far.observer
	if _, final := far.host.state(); final != nil {
		if !o.MayRefuse() {
			o.Fail("R4", "the process of the second region refuses to go on: %w", final)
		}
		o.ReadFinally()
		return
	}
	if ended, err := far.ended(); !ended {
		o.Fail("R7", "the promotion has not ended a minute later: %v", err)
	}
	proc := far.host.processor()
	if proc == nil {
		o.Fail("R4", "the process of the second region has not begun")
		return
	}
	// While the first region refuses to go on, and may, the second waits for what that has not published.
	must := o.Reason() == "" && (far.promoted || w.refusal() == nil)
	if d := o.Compare(wire.Time(time.Now().UnixMilli())); len(d) > 0 && must && far.promoted {
		o.Fail("R5", "events of the second region: %s", d)
	}
	if must && !w.secondRests() {
		log := w.nats.Stream(observer.Log)
		if far.promoted {
			log = far.nats.Stream(observer.Log)
		}
		o.Fail("R4", "a minute later the second region is not ready (%v), or behind: it has applied %d of %d",
			proc.Ready(), appliedIn(far.redis), log.LastSeq())
	}
	if d := o.Compare(wire.Time(time.Now().UnixMilli())); len(d) > 0 && must {
		o.Fail("R5", "events of the second region: %s", d)
	}
	o.ReadFinally()
}
