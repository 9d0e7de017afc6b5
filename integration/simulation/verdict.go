package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// broken is the first thing that must not be, in any region; nil if there is none.
func (w *World) broken() error {
	for _, s := range w.sites() {
		if err := s.observer.Broken(); err != nil {
			return err
		}
	}
	return nil
}

// processes are all that there are.
func (w *World) processes() []*process {
	all := slices.Clone(w.hosts)
	if w.second != nil {
		all = append(all, w.second.host, w.second.answers)
		if w.second.operator != nil {
			all = append(all, w.second.operator)
		}
	}
	return all
}

// rests reports whether the world has come to rest: everything that is due is published.
func (w *World) rests() bool {
	return w.firstRests() && w.secondRests()
}

func (w *World) firstRests() bool {
	if w.second != nil && w.second.operator != nil {
		return true // it is the first no more
	}
	if w.refusal() != nil {
		return true
	}
	proc := w.hosts[0].processor()
	if proc == nil || proc.Ready() != nil || w.observer.Owes() || w.observer.Incomplete() != nil ||
		w.observer.Unreadable() != nil {
		return false
	}
	d := w.observer.Compare(wire.Time(time.Now().UnixMilli()))
	return len(d) == 0 || w.observer.Reason() == "" && !d.OnlyMissing()
}

// refusal is why a process has ended by itself; nil if none has.
func (w *World) refusal() error {
	for _, p := range w.hosts {
		if _, final := p.state(); final != nil {
			return final
		}
	}
	return nil
}

// judge checks the end of a history.
func (w *World) judge() {
	if w.second == nil || w.second.operator == nil {
		w.judgeFirst()
	}
	if w.second != nil && w.broken() == nil {
		w.judgeSecond()
	}
}

func (w *World) judgeFirst() {
	o := w.observer
	if final := w.refusal(); final != nil {
		if !o.MayRefuse() {
			o.Fail("H12", "a process refuses to go on: %w", final)
		}
		return
	}
	proc := w.hosts[0].processor()
	if proc == nil {
		o.Fail("H10", "the process has not begun")
		return
	}
	ready := errors.Join(proc.Ready(), o.Unreadable())
	if o.MayRefuse() && (errors.Is(ready, processor.ErrRefused) || errors.Is(ready, events.ErrLost)) {
		return
	}
	if o.Remembered() != "" {
		o.Fail("H13", "lapse goes on, and %s", o.Remembered())
	}
	if d := o.Compare(wire.Time(time.Now().UnixMilli())); len(d) > 0 {
		o.Fail("H10", "events: %s", d)
	}
	if ready != nil && o.Reason() == "" { // it may wait for a tick that the log has lost
		o.Fail("H10", "a minute later it is not ready: %w", ready)
	}
	if err := o.Incomplete(); ready == nil && err != nil {
		o.Fail("H20", "a minute later %w", err)
	}
	o.ReadFinally()
}
