package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/dial"
	"github.com/seed18712806/lapse/sink/internal/puback"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestStrayAnswers: an answer that comes late, or again, or to a message that a group does not have, ends nothing.
func TestStrayAnswers(t *testing.T) {
	const stored = `{"stream":"LAPSE_EVENTS","batch":"B42","count":2,"seq":7}`
	for name, tt := range map[string]struct {
		id   uint64
		i    int
		mode mode
		data string
		ends bool
		seq  uint64
		is   error
	}{
		"another group":             {2, 0, single, stored, false, 0, nil},
		"before the first":          {1, -1, single, stored, false, 0, nil},
		"behind the last":           {1, 2, single, stored, false, 0, nil},
		"the first":                 {1, 0, single, stored, true, 7, nil},
		"the last":                  {1, 1, atomicBatch, stored, true, 7, nil},
		"another batch":             {1, 1, atomicBatch, strings.ReplaceAll(stored, `"B42"`, `"C42"`), true, 0, errNotBatch},
		"of a fast batch":           {1, 1, fastBatch, stored, true, 7, nil},
		"another fast batch":        {1, 1, fastBatch, strings.ReplaceAll(stored, `"B42"`, `"C42"`), true, 0, errNotBatch},
		"progress of a fast batch":  {1, 0, fastBatch, `{"type":"ack","seq":1,"msgs":1}`, false, 0, nil},
		"no answer to a fast batch": {1, 0, fastBatch, `no`, true, 0, puback.ErrNotAnAnswer},
		"no sequence":               {1, 0, single, `{"stream":"X"}`, true, 0, puback.ErrNotAnAnswer},
	} {
		g := &group{messages: rejections("a", 1, 2), mode: tt.mode, batch: "B42", done: make(chan error, 2)}
		a := &acks{waiting: map[uint64]*group{1: g}}
		answer, err := puback.Read(&nats.Msg{Data: []byte(tt.data)})
		a.settle(tt.id, tt.i, answer, err)
		a.settle(tt.id, tt.i, answer, err)
		if n := len(g.done); (n == 1) != tt.ends || n > 1 || g.seq != tt.seq {
			t.Errorf("%s: it ends %d times, stored at %d", name, n, g.seq)
		} else if n == 1 {
			if err := <-g.done; !errors.Is(err, tt.is) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	g := &group{messages: rejections("a", 1, 3), mode: fastBatch, batch: "B42"}
	done, err := g.fast(2, puback.Answer{Stream: "LAPSE_EVENTS", Batch: "B42", Count: 2, Seq: 7}, nil)
	if !done || err == nil || !strings.Contains(err.Error(), "stored 2 messages of a batch of 3") {
		t.Errorf("a part of a batch: %v", err)
	}
	if done, err := g.fast(2, puback.Answer{}, puback.ErrNotAnAnswer); !done || !errors.Is(err, puback.ErrNotAnAnswer) ||
		g.stored != 2 {
		t.Errorf("a refusal: %t, %v, %d are stored", done, err, g.stored)
	}
}

// TestReplySubjects: where the answers to the messages of a group go.
func TestReplySubjects(t *testing.T) {
	for m, want := range map[mode][]string{
		single: {"in.0", "in.1", "in.2"}, atomicBatch: {"", "", "in.2"},
		fastBatch: {"in.fast.b.1000.fail.1.0.$FI", "in.fast.b.1000.fail.2.1.$FI", "in.fast.b.1000.fail.3.2.$FI"},
	} {
		g := &group{messages: rejections("a", 1, 3), mode: m, batch: "b"}
		for i := range g.messages {
			if got := g.replyTo("in.", i); got != want[i] {
				t.Errorf("message %d of a group of the kind %d: %q, want %q", i, m, got, want[i])
			}
		}
	}
}

// TestG9_Batches: a batch has as many messages as the server takes, and as many bytes as it stores in time; at least
// one.
func TestG9_Batches(t *testing.T) {
	sized := func(sizes ...int) (all []Message) {
		for _, n := range sizes {
			all = append(all, Message{msg: &nats.Msg{Data: make([]byte, n)}})
		}
		return all
	}
	for _, tt := range []struct {
		messages []Message
		want     int
	}{
		{sized(1, 1), 2}, {sized(1, 1, 1), 3}, {sized(1, 1, 1, 1), 3}, {sized(maxBatchBytes+1, 1), 1}, {sized(1,
			maxBatchBytes), 1},
		{sized(1, maxBatchBytes-1), 2}, {sized(1, maxBatchBytes-2, 1), 3}, {sized(1, maxBatchBytes-1, 1), 2}, {sized(0,
			maxBatchBytes, 1), 2},
	} {
		p := &Publisher{}
		p.largest.Store(3)
		if n := p.batchOf(tt.messages); n != tt.want {
			t.Errorf("a batch has %d of %d messages, want %d", n, len(tt.messages), tt.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for tries, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 7: 64, 8: 64, 1000: 64} {
			began := time.Now()
			if err := pause(t.Context(), tries, nil); err != nil || time.Since(began) != want*time.Millisecond {
				t.Errorf("after %d tries it pauses for %s, %v", tries, time.Since(began), err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := pause(ctx, 1, errBehind); !errors.Is(err, context.Canceled) || !errors.Is(err, errBehind) {
			t.Errorf("at the end: %v", err)
		}
	})
}

// TestLimits: what a stream is and allows, and the setting that limits a message.
func TestLimits(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	for replicas, want := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		r.p.acks.limit.Store(0)
		r.p.setLimits(jetstream.StreamConfig{Replicas: replicas})
		if waits := time.Duration(r.p.acks.limit.Load()); r.p.replicated.Load() != want || (waits == answerTimeout) != want ||
			r.p.takesFast.Load() {
			t.Errorf("%d replicas: it is replicated: %t, and waits for an answer for %s", replicas, r.p.replicated.Load(), waits)
		}
	}
	most := r.nc.MaxPayload()
	for size, want := range map[int64]int64{-1: most, 0: most, 1: 1, most - 1: most - 1, most: most, most + 1: most} {
		r.p.maxSize.Store(size)
		limit, setting := r.p.limit()
		if limit != want || strings.Contains(setting, "max_payload") != (limit == most) || strings.Contains(setting,
			"LAPSE_EVENTS") == (limit == most) {
			t.Errorf("max_msg_size %d: the limit is %d, by %s", size, limit, setting)
		}
	}
	// Somebody has raised the limit: what fits now stays whole, and what is behind it and does not fit is made smaller.
	r.p.maxSize.Store(100)
	fits, large := rejection("a", 1, `{"a":1}`), rejection("a", 2, strings.Repeat("x", int(most)))
	size := fits.size()
	if err := r.p.fit(t.Context(), []Message{fits, large}); err != nil || size <= 100 || fits.size() != size ||
		large.size() > most {
		t.Errorf("messages of %d and %d bytes, limit %d: %v", fits.size(), large.size(), most, err)
	}
	if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	if err := r.p.shrink(t.Context(), rejections("a", 1, 1)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the limits of a stream that is gone: %v", err)
	}
	r.p.maxSize.Store(100)
	if err := r.p.fit(t.Context(), rejections("a", 1, 1)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the same before a message is sent: %v", err)
	}
}

// TestG12_ABatchBeginsBehindWhatWasStored: an atomic batch is stored in place of what the stream has lost, and ends
// behind it. Its first sequence shows the loss.
func TestG12_ABatchBeginsBehindWhatWasStored(t *testing.T) {
	for last, lost := range map[uint64]bool{3: false, 4: true, 8: true, 9: true} {
		r := newRig(t, natstest.Options{}, atomicBatches)
		r.publish(rejections("a", 1, 3)...)
		r.p.last = Place{last, Key{Kind: keyRejected, Seq: 3}}
		_, err := r.p.Publish(t.Context(), r.p.Unfenced(0), rejections("a", 4, 5)) // at 4 to 8
		if errors.Is(err, ErrLost) != lost || err != nil != lost {
			t.Errorf("the stream had %d messages, and stores others from 4 on: %v", last, err)
		}
	}
}

// TestPublishWaits: where there is no room, no connection or no message, Publish stores nothing.
func TestPublishWaits(t *testing.T) {
	everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
		r := newRig(t, natstest.Options{}, config)
		full := func(limit **semaphore.Weighted) {
			t.Helper()
			was := *limit
			*limit = semaphore.NewWeighted(0)
			for _, messages := range [][]Message{rejections("a", 1, 1), rejections("a", 1, 2)} {
				if limit == &r.p.open && (len(messages) == 1 || config.AllowBatchPublish) {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				at, err := r.p.Publish(ctx, r.p.Unfenced(0), messages)
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "publish to "+
					"lapse.rejected.orders.a: ") || at != (Place{}) {
					t.Errorf("there is no room for %d messages: %s, %v", len(messages), at, err)
				}
			}
			*limit = was
		}
		full(&r.p.acks.room)
		full(&r.p.open)
		if n := len(r.stored()); n > 0 {
			t.Errorf("%d messages are stored", n)
		}
		r.publish(rejections("a", 1, 2)...) // it does not block for ever
		nc := connect(t, strings.TrimPrefix(r.nc.ConnectedUrl(), "nats://"))
		p := r.publisher(nc)
		nc.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for n := range 2 {
			if _, err := p.Publish(ctx, Fence{}, rejections("a", 10, n+1)); !errors.Is(err, nats.ErrConnectionClosed) {
				t.Errorf("%d messages on a closed connection: %v", n+1, err)
			}
		}
		if p, err := NewPublisher(nc, prefix, config); p != nil || !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("a publisher on a closed connection: %v", err)
		}
	})
}

// TestG12_AReconnectionEndsAFence: the server was away, and may have lost what it had stored. What carries a fence of
// before is refused, until the shard was taken over again; what never had a fence goes on.
func TestG12_AReconnectionEndsAFence(t *testing.T) {
	server := natstest.NewServer(t, "")
	server.Start()
	r := &rig{t: t, nc: connect(t, strings.TrimPrefix(server.URL, "nats://"))}
	r.js = natstest.JetStream(t, r.nc)
	r.stream = natstest.CreateStream(t, r.js, eventsConfig(fastBatches))
	r.p = r.publisher(r.nc)
	fence := r.fence()
	r.publishBehind(fence, rejections("a", 1, 1))
	publish := func(fence Fence) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := r.p.Publish(ctx, fence, rejections("a", 2, 1))
		return err
	}
	server.Kill()
	r.until("the connection is lost", func() bool { return !r.nc.IsConnected() })
	if err := publish(fence); !errors.Is(err, errReconnected) {
		t.Errorf("without a connection: %v", err)
	}
	server.Start()
	r.until("there is a connection", r.nc.IsConnected)
	if err := publish(fence); !errors.Is(err, errReconnected) {
		t.Errorf("with another connection: %v", err)
	}
	if err := publish(Fence{}); err != nil {
		t.Errorf("without a fence: %v", err)
	}
	r.publishBehind(r.fence(), rejections("a", 3, 1))
}

// TestG12_APublicationThatStandsStill: a publication has passed all checks and waits for its turn, while the server is
// away and comes back. The server may have lost outputs of the same document, so the publication is not sent.
//
// It fails if nothing is checked at the moment when it is sent: it would be stored in the place of a lost output.
func TestG12_APublicationThatStandsStill(t *testing.T) {
	for _, n := range []int{1, 2} {
		server := natstest.NewServer(t, "")
		server.Start()
		r := &rig{t: t, nc: connect(t, strings.TrimPrefix(server.URL, "nats://"), nats.SetCustomDialer(
			dial.New(&net.Dialer{Timeout: time.Minute})), nats.ReconnectBufSize(-1))}
		r.js = natstest.JetStream(t, r.nc)
		r.stream = natstest.CreateStream(t, r.js, eventsConfig(fastBatches))
		r.p = r.publisher(r.nc)
		fence := r.fence()
		r.publishBehind(fence, rejections("a", 1, 1))
		room := r.p.acks.room
		if err := room.Acquire(t.Context(), maxPending); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := r.p.Publish(t.Context(), fence, rejections("a", 2, n))
			done <- err
		}()
		r.until("it waits for its turn", func() bool { return !room.TryAcquire(0) })
		server.Kill()
		r.until("the connection is lost", func() bool { return !r.nc.IsConnected() })
		server.Start()
		r.until("there is a connection", r.nc.IsConnected)
		room.Release(maxPending)
		if err := <-done; !errors.Is(err, errReconnected) {
			t.Errorf("%d messages on the next connection: %v", n, err)
		}
		if got := r.storedOn("a"); len(got) != 1 {
			t.Errorf("%d messages on the next connection: the stream has those of %v", n, got)
		}
		renewed := r.fence()
		if err := renewed.Renews(fence); !errors.Is(err, errReconnected) {
			t.Errorf("a fence behind another connection: %v", err)
		}
		again := r.fence()
		if err := again.Renews(renewed); err != nil {
			t.Errorf("a fence behind the same connection: %v", err)
		}
		r.p.NoteLoss()
		lost := r.fence()
		if err := lost.Renews(again); !errors.Is(err, ErrLost) {
			t.Errorf("a fence behind a loss: %v", err)
		}
	}
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	if err := poll.Met(time.Minute, what, ok); err != nil {
		r.t.Fatal(err)
	}
}

// TestIncompleteBatches: a batch that the server calls incomplete is sent some times, and then its messages one after
// the other. The next ones are a batch again. A batch that is too large is halved.
func TestIncompleteBatches(t *testing.T) {
	for name, tt := range map[string]struct {
		limits               string
		batches, alone, most int
	}{
		"too many are open": {"max_inflight_per_stream: 1", 3 * incompleteTries, 25, 10},
		"too large":         {"max_msgs: 5", 1 + 5, 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, natstest.Options{JetStream: fmt.Sprintf("limits { batch { %s } }", tt.limits)}, atomicBatches)
			if strings.Contains(name, "many") {
				somebodys := rejection("x", 5000, "{}")
				somebodys.msg.Reply = r.nc.NewInbox()
				joinBatch(somebodys.msg, "somebodys", 1, false)
				if err := r.nc.PublishMsg(somebodys.msg); err != nil {
					t.Fatal(err)
				}
			}
			sent := make(chan *nats.Msg, 1000)
			_, err := r.nc.ChanSubscribe("lapse.rejected.orders.a", sent)
			if err == nil {
				err = r.nc.Flush()
			}
			r.p.largest.Store(10)
			r.publish(rejections("a", 1, 25)...)
			if err = errors.Join(err, r.nc.Flush()); err != nil {
				t.Fatal(err)
			}
			batches, alone := 0, 0
			for len(sent) > 0 {
				if m := <-sent; m.Header.Get(headerBatchCommit) != "" {
					batches++
				} else if m.Header.Get(headerBatchID) == "" {
					alone++
				}
			}
			if n := len(r.storedOn("a")); n != 25 || batches != tt.batches || alone != tt.alone ||
				r.p.largest.Load() != int64(tt.most) {
				t.Errorf("%d are stored; it has sent %d batches of %d at most, and %d alone", n, batches, r.p.largest.Load(), alone)
			}
		})
	}
}

// TestShorten: what is cut off a text, and what of a rejection is cut at the limit: nothing at it, and first the error.
func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		text  string
		bytes int
		want  string
	}{{"abcdefgh", -1, "abcdefgh"}, {"abcdefgh", 0, "abcdefgh"}, {"abcdefgh", 1, "abcd..."}, {"abcdefgh", 5,
		"..."}, {"abcdefgh", 50, "..."}, {"éééé", 2, "é..."}} {
		if got := shorten(tt.text, tt.bytes); got != tt.want {
			t.Errorf("%s without %d bytes: %q, want %q", tt.text, tt.bytes, got, tt.want)
		}
	}
	text, body := strings.Repeat("e", 5000), []byte(`{"a":1}`)
	make := func() Message {
		return Rejected(testLog, Rejection{Subject: "s", Rest: "s", Seq: 7, Error: text, Body: body})
	}
	whole, short := make(), make()
	whole.truncate(whole.size())
	if h := whole.msg.Header; h.Get(wire.HeaderError) != text || !bytes.Equal(whole.msg.Data, body) {
		t.Errorf("at the limit it is cut: %v", h)
	}
	short.truncate(short.size() - int64(len(text)-len(shorten(text, len(text)-longestError))))
	if h := short.msg.Header; len(h.Get(wire.HeaderError)) > longestError || !bytes.Equal(short.msg.Data, body) ||
		h[wire.HeaderTruncated] != nil || h.Get(wire.HeaderSubject) != "s" {
		t.Errorf("the error is enough, and more is cut: %v, %s", h, short.msg.Data)
	}
}
