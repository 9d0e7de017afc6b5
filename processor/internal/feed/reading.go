package feed

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/wire"
)

// reading is one reading of the log: by the main reader for all partitions (forAll), or for one
// partition that is away (catchUpOnce).
type reading struct {
	last       uint64 // sequence of the last message that was read, or after which it begins
	logTime    *logTime
	first, end int             // it is for the partitions from first to before end
	wanted     bool            // whether the log is known to have messages after last
	rewound    <-chan struct{} // has one element if the reading has to begin again

	begun   func(end uint64) (goOn bool)                                       // the log was verified, and ends at end
	stamped func(isTick bool, stamp time.Time)                                 // a message was read, which the guard may hold up; may be nil
	put     func(partition int, m *fold.Message, over func() bool) (goOn bool) // into an inbox
	passed  func(at fold.Position, meta *nats.MsgMetadata) (goOn bool)         // the message is in all its inboxes
}

// readLog reads until ctx is done, a function of the reading tells it not to go on, or the reading
// has to begin again.
func (r *Reader) readLog(ctx context.Context, s *reading) error {
	lost := r.link.Lost()
	info, messages, forget, err := r.readFrom(ctx, s.last)
	if err != nil {
		return err
	}
	defer forget()
	messages.Wanted = s.wanted
	if !s.begun(info.State.LastSeq) {
		return nil
	}
	// Whatever ends the reading also ends a wait for the next message.
	reading, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	again := false
	go func() {
		defer close(watched)
		defer stop()
		select {
		case <-s.rewound:
			again = true
		case <-lost:
			again = true
		case <-reading.Done():
		}
	}()
	// reading ends a moment after ctx.
	err = r.readOn(reading, s, messages, func() bool { return ctx.Err() != nil || reading.Err() != nil })
	stop()
	<-watched
	if again {
		return nil
	}
	return err
}

// readOn puts messages into their inboxes until ctx is done.
func (r *Reader) readOn(ctx context.Context, s *reading, messages *pull, over func() bool) error {
	for {
		msg, meta, err := messages.Next(ctx.Done())
		if err != nil || msg == nil {
			return err
		}
		seq, subject := meta.Sequence.Stream, r.decoder.Log.ParseSubject(msg.Subject)
		isTick := subject.Kind == wire.SubjectTick
		if err := r.checkGap(ctx, s.last, seq); err != nil {
			return err
		}
		s.last = seq
		if s.stamped != nil {
			s.stamped(isTick, meta.Timestamp)
		}
		if err := r.guard.Wait(ctx, meta.Timestamp); err != nil {
			return nil
		}
		at := fold.Position{Seq: seq, Time: s.logTime.at(seq, meta.Timestamp.UnixMilli()), Stamp: meta.Timestamp.UnixNano()}
		r.saw(at)
		if !isTick && !r.deliver(s, subject, msg, at, over) || !s.passed(at, meta) {
			return nil
		}
	}
}

// checkGap finds out why there is no message between last and seq.
func (r *Reader) checkGap(ctx context.Context, last, seq uint64) error {
	if seq <= last+1 {
		return nil
	}
	info, err := r.verify(ctx, last)
	if err != nil {
		return err
	}
	return r.log.CheckJump(ctx, info, last, seq)
}

// deliver puts a message into the inbox of its partition, or into all inboxes, as far as the reading
// is for them.
func (r *Reader) deliver(s *reading, subject wire.LogSubject, msg *nats.Msg, at fold.Position, over func() bool) bool {
	partition, global := r.decoder.Route(subject)
	first, end := max(s.first, partition), min(s.end, partition+1)
	if !global && first >= end {
		return true
	}
	m := r.decoder.DecodeAs(subject, headerOf(msg), msg.Data, at)
	if over() {
		return false // perhaps it was decoded without the rules of replies
	}
	if global && m.IsControl() {
		first, end = s.first, s.end
	}
	for i := first; i < end; i++ {
		if !s.put(i, m, over) {
			return false
		}
	}
	return true
}

// headerOf is the header of a message. Where it cannot be read, the client library returns
// none; headerOf then returns one with an empty name, which no valid header has.
func headerOf(m *nats.Msg) nats.Header {
	if m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) {
		return nats.Header{"": nil}
	}
	return m.Header
}
