package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// pullRig is a stream with a consumer of it.
type pullRig struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.Consumer
}

const limit1 = time.Minute

func newPullRig(t *testing.T) pullRig {
	t.Helper()
	nc, err := nats.Connect(natstest.Start(t, natstest.Options{}), natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js := natstest.JetStream(t, nc)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"},
		Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy,
		InactiveThreshold: limit1})
	if err != nil {
		t.Fatal(err)
	}
	return pullRig{nc, js, stream, consumer}
}

func (r pullRig) sendAsync(t *testing.T, m *nats.Msg) {
	t.Helper()
	if _, err := r.js.PublishMsgAsync(m, jetstream.WithStallWait(limit1)); err != nil {
		t.Fatal(err)
	}
}

func (r pullRig) flush(t *testing.T) {
	t.Helper()
	select {
	case <-r.js.PublishAsyncComplete():
	case <-time.After(limit1):
		t.Fatal("the messages are not stored")
	}
}

func (r pullRig) pull(t *testing.T, maxBytes int) *pull {
	t.Helper()
	p, err := newPull(r.nc, "S", r.consumer.CachedInfo().Name, maxBytes, &atomic.Uint64{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestPull: every message comes, once and in order, with its header and its body, though
// there are more than are asked for at a time, in messages and in bytes, and one alone is
// larger than that.
//
// The server may not have counted all that is pending.
//
// Goes red if what is over is not asked for again, or always with as little room.
func TestPull(t *testing.T) {
	t.Parallel()
	const many = 3 * messagesAtOnce
	r := newPullRig(t)
	large := strings.Repeat("x", 1000)
	for i := range many {
		body := fmt.Sprint(i)
		if i > many/2 && i%10 == 0 {
			body += large
		}
		if i == many-5 {
			body += strings.Repeat(large, 100)
		}
		r.sendAsync(t, &nats.Msg{Subject: "s", Data: []byte(body)})
		if i%1000 == 0 {
			r.flush(t)
		}
	}
	r.flush(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit1)
	defer cancel()
	p := r.pull(t, 2000) // one of the large ones, and not two
	for i := range many {
		m, meta, err := p.Next(ctx.Done())
		if err != nil || m == nil {
			t.Fatalf("message %d: %v, %v", i, m, err)
		}
		if n, _, _ := strings.Cut(string(m.Data), "x"); n != fmt.Sprint(i) || meta.Sequence.Stream != uint64(i+1) ||
			meta.NumPending > uint64(many-i-1) || i == many-1 && meta.NumPending != 0 {
			t.Fatalf("message %d is %.20s, %+v", i, m.Data, meta)
		}
	}
	// What comes later comes too, and where nothing comes, done counts.
	r.sendAsync(t, &nats.Msg{Subject: "s", Header: nats.Header{"Status": {"503"}}})
	if m, _, err := p.Next(ctx.Done()); err != nil || m == nil || m.Header.Get("Status") != "503" {
		t.Errorf("a message that looks like a status: %+v, %v", m, err)
	}
	cancel()
	if m, _, err := p.Next(ctx.Done()); m != nil || err != nil {
		t.Errorf("after the end: %v, %v", m, err)
	}
}

// TestPullEnds: where the reading cannot go on, next returns the reason.
func TestPullEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		begun bool // it has read something before
		do    func(r pullRig, p *pull) error
		says  string
	}{
		{"the consumer is deleted", true, func(r pullRig, _ *pull) error {
			return r.stream.DeleteConsumer(context.Background(), r.consumer.CachedInfo().Name)
		}, "409 Consumer Deleted"},
		{"the stream is deleted", true, func(r pullRig, _ *pull) error {
			return r.js.DeleteStream(context.Background(), "S")
		}, "409 Consumer Deleted"},
		{"there is no such consumer", false, func(_ pullRig, p *pull) error {
			p.subject += "x"
			return nil
		}, "503"},
		{"a message is lost", true, func(_ pullRig, p *pull) error {
			p.messages <- &nats.Msg{Sub: p.sub, Reply: "$JS.ACK.S.c.1.3.3.0.0"}
			return nil
		}, "messages of the log were lost on the way"},
		{"the last message is lost", true, func(r pullRig, p *pull) error {
			_, err := r.js.Publish(context.Background(), "s", nil)
			<-p.messages
			return err
		}, "messages of the log were lost on the way"},
		{"nobody answers", false, func(r pullRig, p *pull) error {
			_, err := r.nc.Subscribe(p.subject+"x", func(*nats.Msg) {})
			p.subject += "x"
			return err
		}, errSilent.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newPullRig(t)
			p := r.pull(t, PullBytes)
			ctx, cancel := context.WithTimeout(t.Context(), limit1)
			defer cancel()
			if c.begun {
				r.sendAsync(t, &nats.Msg{Subject: "s", Data: []byte("1")})
				if m, _, err := p.Next(ctx.Done()); m == nil || err != nil {
					t.Fatalf("%v, %v", m, err)
				}
			}
			if err := c.do(r, p); err != nil {
				t.Fatal(err)
			}
			if m, _, err := p.Next(ctx.Done()); m != nil || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, %v; want %q", m, err, c.says)
			}
		})
	}
}

// TestPullIdle: where nothing is written nothing is wrong, for longer than a request
// lasts or the server is silent.
func TestPullIdle(t *testing.T) {
	t.Parallel()
	r := newPullRig(t)
	p := r.pull(t, PullBytes)
	ctx, cancel := context.WithTimeout(t.Context(), 4*heartbeat)
	defer cancel()
	if m, _, err := p.Next(ctx.Done()); m != nil || err != nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("while idle: %v, %v", m, err)
	}
}

// TestPullStatus: the part of a request that does not come any more is requested again, and
// any other status of the server ends the reading.
func TestPullStatus(t *testing.T) {
	for _, c := range []struct {
		status, description, left string
		open                      int // of 10,000 before
		ends                      bool
	}{
		{"100", "Idle Heartbeat", "", 10_000, false},
		{"408", "Request Timeout", "3000", 7000, false},
		{"408", "Interest Expired", "10000", 0, false},
		{"409", "Message Size Exceeds MaxBytes", "1", 9999, false},
		{"409", "Batch Completed", "20000", 0, false},
		{"408", "Request Timeout", "", 10_000, true},
		{"409", "Leadership Change", "5", 10_000, true},
		{"409", "Server Shutdown", "", 10_000, true},
		{"503", "", "", 10_000, true},
		{"", "", "", 10_000, true},
	} {
		p := &pull{open: 10_000}
		err := p.status(&nats.Msg{Header: nats.Header{"Status": {c.status}, "Description": {c.description},
			"Nats-Pending-Messages": {c.left}}})
		if p.open != c.open || (err != nil) != c.ends {
			t.Errorf("%s %s: %d are open, and %v; want %d", c.status, c.description, p.open, err, c.open)
		}
	}
}
