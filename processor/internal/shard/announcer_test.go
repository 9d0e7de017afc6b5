package shard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// self is an owner that nobody takes anything from.
type self struct{}

func (self) Verify(context.Context) error { return nil }
func (self) Verified() time.Time          { return time.Now() }

// rig is a stream of events, and what announcers share.
type rig struct {
	t       *testing.T
	js      jetstream.JetStream
	streams *streams.Streams
	log     events.Source
	channel *Channel
}

func newRig(t *testing.T) *rig {
	t.Helper()
	js := natstest.Connect(t, natstest.Options{})
	nc := js.Conn()
	made, err := streams.Provision(t.Context(), js, streams.Options{Prefix: wire.DefaultPrefix, Partitions: 2, MaxPayload: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := events.NewPublisher(nc, wire.DefaultPrefix, made.Events.CachedInfo().Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(publisher.Close)
	l, stop := streams.WatchLink(nc)
	t.Cleanup(stop)
	log := events.NewSource(wire.DefaultPrefix.Log(0, 1), made.Created())
	return &rig{t: t, js: js, streams: made, log: log, channel: &Channel{
		Publisher: publisher, Tail: publisher.NewTail(log), Link: l, Emitted: prometheus.NewCounter(prometheus.CounterOpts{Name: "emitted"}),
	}}
}

// takeOver is what an owner does of a takeover that concerns the stream of events.
func (r *rig) takeOver(a *Announcer, c Checkpoint, upTo uint64) {
	r.t.Helper()
	a.Hold()
	if err := a.Fence(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.channel.Tail.Cover(r.t.Context(), c.From.Seq, a.FencePlace().Seq); err != nil {
		r.t.Fatal(err)
	}
	a.Begin(c, upTo, c.Last)
}

// rejections are the outputs of messages of the log.
func (r *rig) rejections(seqs ...uint64) (outputs []fold.Output) {
	for _, seq := range seqs {
		outputs = append(outputs, fold.Output{Seq: seq, Message: events.Rejected(r.log, events.Rejection{Subject: "x", Rest: "x", Seq: seq, Ts: 1, Code: 400, Error: "x"})})
	}
	return outputs
}

func (r *rig) publish(a *Announcer, outputs []fold.Output) {
	r.t.Helper()
	if err := a.Publish(r.t.Context(), outputs, store.Stamp{}); err != nil {
		r.t.Fatal(err)
	}
}

// stored fails the test unless the stream has the rejections of these messages, in this order.
func (r *rig) stored(want ...string) {
	r.t.Helper()
	info, err := r.streams.Events.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := r.streams.Events.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		if n := m.Header.Get(wire.HeaderSeq); n != "" {
			got = append(got, n)
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("the stream has the rejections of %v, want %v", got, want)
	}
}

// TestG3_AnnouncerPublishesOnce: an owner publishes what a former owner has not published, in the order
// of the log.
//
// It fails if an output at the border is published twice or not at all, or if one of before a takeover is
// taken for stored afterwards, although the stream has lost it.
func TestG3_AnnouncerPublishesOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := NewAnnouncer(r.channel, 0, self{})
	r.takeOver(former, Checkpoint{}, 0)
	r.publish(former, r.rejections(11, 12))

	a := NewAnnouncer(r.channel, 0, self{})
	r.takeOver(a, Checkpoint{Seq: 10, Watermark: 1}, 14)
	r.publish(a, r.rejections(9, 10)) // at or before the checkpoint: published, and aged out
	r.publish(a, r.rejections(11, 12, 13, 14, 15))
	r.stored("11", "12", "13", "14", "15")
	if err := former.Publish(t.Context(), r.rejections(16), store.Stamp{}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a former owner publishes: %v", err)
	}
	lost := r.rejections(20, 21, 22)
	r.publish(a, lost)
	r.stored("11", "12", "13", "14", "15", "20", "21", "22")
	// A takeover goes by the stream, and by nothing that it remembers.
	if err := r.streams.Events.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.takeOver(a, Checkpoint{Seq: 19, Watermark: 1, From: a.Last()}, 22)
	info, err := r.streams.Events.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.publish(a, lost)
	if now, err := r.streams.Events.Info(t.Context()); err != nil || now.State.LastSeq != info.State.LastSeq+3 {
		t.Errorf("what is lost is not published again: %+v, %v", now.State, err)
	}
}

// TestG3_AnnouncerSettles: a checkpoint names the place behind which the stream has what comes after it.
// Until a former owner's outputs are passed that is the place from which this owner began.
//
// It fails if a checkpoint names a place behind an output that it does not cover: the next owner would
// publish that again.
func TestG3_AnnouncerSettles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAnnouncer(r.channel, 0, self{})
	if err := a.Fence(t.Context()); err != nil {
		t.Fatal(err)
	}
	from := r.channel.Publisher.Last()
	r.takeOver(a, Checkpoint{Seq: 10, Watermark: 1000, From: from}, 20)
	r.publish(a, r.rejections(15))
	last := a.Last()
	other := NewAnnouncer(r.channel, 1, self{})
	r.takeOver(other, Checkpoint{}, 0) // the last place of the publisher is another partition's
	settle := func(seq uint64, watermark int64, want events.Place) {
		t.Helper()
		a.Settle(&Checkpoint{Seq: seq, Watermark: watermark})
		if c := a.Settled(); c.From != want || c.Last != last {
			t.Errorf("settled at %d, %d: from %s, last %s, want from %s, last %s", seq, watermark, c.From, c.Last, want, last)
		}
	}
	settle(20, 2000, from) // log time at the end of the log is not known yet
	a.Pass(2000)
	settle(19, 2000, from)
	settle(20, 1999, from)
	settle(20, 2000, r.channel.Publisher.Last())
	if a.holds {
		t.Error("it still holds the tail")
	}
}

// TestG9_ATakeoverHoldsTheTailOnce: a takeover that begins again does not keep the tail of the stream in
// memory for ever.
func TestG9_ATakeoverHoldsTheTailOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := NewAnnouncer(r.channel, 0, self{})
	r.takeOver(former, Checkpoint{}, 0)
	outputs := r.rejections(11)
	r.publish(former, outputs)
	a := NewAnnouncer(r.channel, 0, self{})
	a.Hold()
	r.takeOver(a, Checkpoint{Seq: 10, Watermark: 1}, 11)
	former.release()
	former.release() // it holds nothing any more
	if _, found := r.channel.Tail.Find(outputs[0].Message); !found {
		t.Error("the tail is gone, and the takeover holds it")
	}
	a.release()
	if _, found := r.channel.Tail.Find(outputs[0].Message); found {
		t.Error("the tail is there, and nobody holds it")
	}
}
