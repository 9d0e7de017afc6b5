package simulation

import (
	"errors"
	"time"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// rests reports whether the world has come to rest: everything that is due is published.
func (w *World) rests() bool {
	if w.refusal() != nil {
		return true
	}
	proc := w.hosts[0].processor()
	if proc == nil || proc.Ready() != nil || w.observer.Owes() || w.observer.Unreadable() != nil {
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
	o.ReadFinally()
}
