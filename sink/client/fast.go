package client

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/internal/puback"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	// ackEvery is after how many messages of a batch the server acknowledges them.
	ackEvery = 100
	// A batch ends when nothing was sent for so long: then the server acknowledges the rest.
	// Otherwise it would forget the batch after 10 s.
	idleAck     = 10 * time.Millisecond
	idleOutcome = time.Second
	// lookFor limits the time to find out whether the log takes batches.
	lookFor = time.Second
	// lostEvery is how often a wait for the end of a batch looks for a new connection.
	lostEvery = 50 * time.Millisecond
)

// fast publishes messages in fast batches, one at a time for each shard.
//
// The server stores the messages of a batch in their order. If it refuses one, it stores none
// after it: these are sent again, in a new batch, before any newer message. So the log has
// the messages in the order of sending. A batch tells nothing of a message that is a
// duplicate, so a message with an id is sent by itself, after the end of the batches.
type fast struct {
	p       *pipe
	sending sync.Mutex // held while messages are published

	mu    sync.Mutex // of all below
	off   bool       // the log does not take batches
	lanes []*lane
}

// lane leads to the log of a shard.
type lane struct {
	number  int
	log     wire.Log
	batch   *batch // nil if none is open
	left    []sent // of the last batch, to be sent again
	started bool   // the log has taken a batch
	idle    *time.Timer
}

// batch is an open fast batch.
type batch struct {
	id         string
	subject    string // of its first message
	reconnects uint64 // of the connection when it began
	sent       int
	unstored   []sent // without an acknowledgement; the first is message acked+1
	acked      int
	ending     bool          // no message may follow
	refused    int           // the message that the log has refused; 0 if none
	reason     error         // why it has
	started    chan struct{} // closed when the log has taken the first message
	ended      chan struct{} // closed when nothing more is to come
}

// sent is a message of a flight.
type sent struct {
	n   uint64
	msg *nats.Msg
}

// lookAtLog finds out into how many shards the log is divided, and the configuration of its first stream.
func lookAtLog(ctx context.Context, l *connection) (shards int, config jetstream.StreamConfig, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	shards = 1
	info, err := streamInfo(ctx, l, l.Prefix.LogStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if info, err = streamInfo(ctx, l, l.Prefix.ConfigStream()); err == nil {
			shards, _ = strconv.Atoi(info.Config.Metadata[wire.ShardsKey])
			info, err = streamInfo(ctx, l, l.Prefix.Log(0, shards).Stream())
		}
	}
	if err != nil {
		return shards, config, err
	}
	return shards, info.Config, nil
}

// newFast finds out whether the log takes fast batches. It returns nil if it does not, or if the user may not look at
// it. Where there is no log yet it waits for it, as lapse may be starting, and leaves a quarter of the timeout for the
// messages.
func newFast(ctx context.Context, p *pipe) *fast {
	shards, config, err := lookAtLog(ctx, p.l)
	for end := time.Now().Add(p.l.Timeout * 3 / 4); errors.Is(err, jetstream.ErrStreamNotFound) &&
		time.Now().Before(end); {
		select {
		case <-time.After(absentAgain):
		case <-ctx.Done():
			return nil
		}
		shards, config, err = lookAtLog(ctx, p.l)
	}
	if err != nil || !config.AllowBatchPublish || shards < 1 || shards > wire.MaxShards {
		return nil
	}
	f := &fast{p: p}
	for shard := range shards {
		f.lanes = append(f.lanes, &lane{number: shard, log: p.l.Prefix.Log(shard, shards)})
	}
	return f
}

// laneOf is the lane of a message; nil if it cannot be in a batch.
func (f *fast) laneOf(msg *nats.Msg) *lane {
	s := f.p.l.Prefix.Log(0, 1).ParseSubject(msg.Subject)
	if s.Kind != wire.SubjectWrite || strings.Contains(s.Token, ".") || msg.Header.Get(jetstream.MsgIDHeader) != "" {
		return nil
	}
	return f.lanes[wire.ShardOf(len(f.lanes), s.Collection, s.Token)]
}

// send sends a message in a batch. It reports whether it has, or will: otherwise the message
// has to be sent by itself.
func (f *fast) send(ctx context.Context, n uint64, msg *nats.Msg) (done bool, err error) {
	f.sending.Lock()
	defer f.sending.Unlock()
	lane := f.laneOf(msg)
	if lane == nil {
		return false, f.drain(ctx)
	}
	if err := f.again(ctx, lane); err != nil {
		return false, err
	}
	return f.add(ctx, lane, sent{n, msg})
}

// add sends a message in the open batch of a lane, or a new one. Without a connection it waits for one.
func (f *fast) add(ctx context.Context, lane *lane, s sent) (done bool, err error) {
	if err := f.p.l.AwaitConnection(ctx); err != nil {
		return false, err
	}
	b, probe, err := f.join(ctx, lane, s)
	if err != nil || b == nil {
		return false, err
	}
	msg := *s.msg // the original is for sending it again
	msg.Subject, msg.Reply = lane.log.Mapped(msg.Subject), f.reply(lane, b, b.sent, puback.Add)
	if probe {
		// A user may have the permission for the subjects of clients alone.
		defer f.p.l.Expect(func(error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if lane.batch == b {
				f.refuse(lane, b, 1, nil)
			}
		}, func(subject string) bool { return subject == msg.Subject })()
	}
	if err := f.p.l.NC.PublishMsg(&msg); err != nil {
		f.leave(lane, b, s)
		if f.p.l.isUnsent(err) && f.p.failed.Err() == nil {
			return f.add(ctx, lane, s)
		}
		return false, err
	}
	f.touch(lane)
	if probe {
		_ = f.await(ctx, lane, b, b.started) // the message is sent, whatever comes
	}
	return true, nil
}

// probes reports whether a subject is that of a lane whose log has not taken a batch yet.
func (f *fast) probes(subject string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.lanes, func(l *lane) bool {
		return l.log.ParseSubject(subject).Own && !l.started && !f.off
	})
}

// reply is the subject for answers to a message of a batch.
func (f *fast) reply(lane *lane, b *batch, message int, op puback.Operation) string {
	return puback.FastReply(f.p.inbox+".fast."+strconv.Itoa(lane.number), b.id, ackEvery, message, op)
}

// join makes a message the last one of the open batch of a lane, or the first one of a new
// batch. If the last batch is ending, join waits for its end, and sends again what that has
// left. It returns nil if the log does not take batches. probe means that this message shows
// whether it does.
//
// An answer can end a batch at any moment. So what finds the batch open and what adds the
// message to it hold the mutex together: no batch gets a message after its end.
func (f *fast) join(ctx context.Context, lane *lane, s sent) (b *batch, probe bool, err error) {
	for {
		reconnects := f.p.l.NC.Stats().Reconnects
		f.mu.Lock()
		b := lane.batch
		if b == nil && len(lane.left) == 0 && !f.off {
			b = &batch{id: rand.Text(), reconnects: reconnects, subject: lane.log.Mapped(s.msg.Subject),
				started: make(chan struct{}), ended: make(chan struct{})}
			lane.batch = b
		}
		switch {
		case f.off:
			f.mu.Unlock()
			return nil, false, nil
		case b != nil && b.reconnects != reconnects:
			f.forget(lane, b)
		case b != nil && !b.ending:
			b.sent++
			b.unstored = append(b.unstored, s)
			probe := b.sent == 1 && !lane.started
			f.mu.Unlock()
			return b, probe, nil
		}
		f.mu.Unlock()
		if b != nil {
			err = f.await(ctx, lane, b, b.ended)
		}
		if err == nil {
			err = f.again(ctx, lane)
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// leave takes the last message of a batch back: it could not be published. The batch may have
// ended meanwhile.
func (f *fast) leave(lane *lane, b *batch, s sent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lane.batch != b {
		lane.left = slices.DeleteFunc(lane.left, func(one sent) bool { return one.n == s.n })
		return
	}
	b.sent--
	b.unstored = b.unstored[:len(b.unstored)-1]
	if b.sent == 0 {
		lane.close(b)
	}
}

// await waits until a channel of a batch is closed, or the batch has ended otherwise.
func (f *fast) await(ctx context.Context, lane *lane, b *batch, done <-chan struct{}) error {
	tick := time.NewTicker(lostEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-b.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-f.p.failed.Done():
			return context.Cause(f.p.failed)
		case <-tick.C:
			if f.p.l.NC.Stats().Reconnects != b.reconnects {
				f.mu.Lock()
				f.forget(lane, b)
				f.mu.Unlock()
			}
		}
	}
}

// again sends again what the last batch of a lane has left: in a new batch, or one by one if
// the log does not take batches.
func (f *fast) again(ctx context.Context, lane *lane) error {
	f.mu.Lock()
	left := lane.left
	lane.left = nil
	f.mu.Unlock()
	for i, s := range left {
		done, err := f.add(ctx, lane, s)
		if !done && err == nil {
			err = f.p.alone(ctx, s.n, s.msg)
		}
		if err == nil {
			continue
		}
		err = f.p.l.PublishError(s.msg.Subject, err)
		for _, s := range left[i:] {
			f.p.finish(s.n, func(*flight) error { return err })
		}
		return err
	}
	return nil
}

// touch ends the batch of a lane when nothing was sent for a while.
func (f *fast) touch(lane *lane) {
	idle := idleOutcome
	if f.p.opts.AckOnly {
		idle = idleAck
	}
	if lane.idle != nil {
		lane.idle.Reset(idle)
		return
	}
	lane.idle = time.AfterFunc(idle, func() {
		f.sending.Lock()
		defer f.sending.Unlock()
		if f.endBatch(lane) && f.p.failed.Err() == nil {
			lane.idle.Reset(lostEvery)
		}
	})
}

// endBatch tells the server that a batch is complete. It reports whether the end is still to
// come. A connection that was lost ends the batch too.
func (f *fast) endBatch(lane *lane) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := lane.batch
	switch {
	case b == nil:
		return false
	case f.p.l.NC.Stats().Reconnects != b.reconnects:
		f.forget(lane, b)
		return false
	}
	f.complete(lane, b)
	return true
}

// drain ends all batches, and waits until they have ended.
func (f *fast) drain(ctx context.Context) error {
	for _, lane := range f.lanes {
		f.endBatch(lane)
	}
	for _, lane := range f.lanes {
		for {
			f.mu.Lock()
			b, left := lane.batch, len(lane.left)
			f.mu.Unlock()
			if b == nil && left == 0 {
				break
			}
			if b != nil {
				if err := f.await(ctx, lane, b, b.ended); err != nil {
					return err
				}
			}
			if err := f.again(ctx, lane); err != nil {
				return err
			}
			f.endBatch(lane)
		}
	}
	return nil
}

// end ends all batches, because the pipe ends.
func (f *fast) end() {
	f.sending.Lock()
	defer f.sending.Unlock()
	for _, lane := range f.lanes {
		if lane.idle != nil {
			lane.idle.Reset(0)
		}
	}
}
