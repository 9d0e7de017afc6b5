package client

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/internal/puback"
)

// cannotFast are the codes by which a log refuses fast batches at all.
var cannotFast = []jetstream.ErrorCode{puback.FastDisabled, puback.FastPattern, puback.FastTooMany}

// receive handles an answer to a message of a batch.
func (f *fast) receive(subject string, msg *nats.Msg) {
	first, _, _ := strings.Cut(subject, ".")
	number, err := strconv.Atoi(first)
	id, message := puback.FastMessage(subject)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || number < 0 || number >= len(f.lanes) {
		return
	}
	lane := f.lanes[number]
	b := lane.batch
	if b == nil || b.id != id {
		return // it has ended before
	}
	switch answer, err := puback.Read(msg); {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		f.refuse(lane, b, message, nil)
	case err != nil, answer.Type == "gap": // the end of the batch follows
	case answer.Type == "ack":
		if !lane.started || b.acked == 0 {
			lane.started = true
			b.start()
		}
		f.stored(b, int(answer.Seq))
	case answer.Type == "err":
		b.ending, b.refused, b.reason = true, int(answer.Seq), answer.Error
	case answer.Error != nil && answer.Error.ErrorCode == puback.FastUnknown:
		f.forget(lane, b)
	case answer.Error != nil:
		f.refuse(lane, b, message, answer.Error)
	case answer.Batch == b.id:
		f.finished(lane, b, answer.Count)
	}
}

// start tells that the log has taken the first message.
func (b *batch) start() {
	select {
	case <-b.started:
	default:
		close(b.started)
	}
}

// refuse handles a message that the log refuses by itself, not as a part of the batch: nil
// means that nobody listens. The batch then has a gap, by which the server ends it.
func (f *fast) refuse(lane *lane, b *batch, message int, reason *jetstream.APIError) {
	if b.refused == 0 {
		b.refused = message
		if reason != nil {
			b.reason = reason
		}
	}
	if message == 1 && b.acked == 0 { // there is no batch
		f.finished(lane, b, 0)
		return
	}
	f.complete(lane, b)
}

// complete tells the server that a batch gets no more messages.
func (f *fast) complete(lane *lane, b *batch) {
	if !b.ending {
		b.ending = true
		_ = f.p.l.NC.PublishMsg(&nats.Msg{Subject: b.subject, Reply: f.reply(lane, b, b.sent+1, puback.End)})
	}
}

// stored notes that the log has the messages of a batch up to a number.
func (f *fast) stored(b *batch, upTo int) {
	n := min(upTo-b.acked, len(b.unstored))
	if n <= 0 {
		return
	}
	for _, s := range b.unstored[:n] {
		if f.p.opts.AckOnly {
			f.p.finish(s.n, func(*flight) error { return nil })
		} else {
			f.p.stored(s.n, 0)
		}
	}
	clear(b.unstored[:n])
	b.unstored = b.unstored[n:]
	b.acked += n
}

// finished handles the end of a batch of which the log has so many messages. It has none of
// the others.
func (f *fast) finished(lane *lane, b *batch, count int) {
	f.stored(b, count)
	left := b.unstored
	var api *jetstream.APIError
	errors.As(b.reason, &api)
	switch {
	case b.refused == 0 || b.refused != count+1 || len(left) == 0:
	case api == nil || slices.Contains(cannotFast, api.ErrorCode):
		f.off = true
	default:
		err := refusedBy(api)
		f.p.finish(left[0].n, func(*flight) error { return err })
		left = left[1:]
	}
	lane.left = append(lane.left, left...)
	lane.close(b)
	if len(lane.left) > 0 {
		go func() { // the answers to it come by this callback
			f.sending.Lock()
			defer f.sending.Unlock()
			_ = f.again(context.Background(), lane) // finishes the messages that it cannot send
		}()
	}
}

// forget ends a batch whose connection was lost. The log may have its messages or not, and
// their outcomes may still come.
func (f *fast) forget(lane *lane, b *batch) {
	if lane.batch != b {
		return
	}
	if f.p.opts.AckOnly {
		for _, s := range b.unstored {
			f.p.finish(s.n, func(fl *flight) error { return interruptedBy(f.p.l.Lost(), fl.known()) })
		}
	}
	lane.close(b)
}

// close ends a batch.
func (l *lane) close(b *batch) {
	l.batch = nil
	close(b.ended)
}
