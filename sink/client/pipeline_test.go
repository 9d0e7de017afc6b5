package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// collected has the results of the messages of a pipeline, by tag.
type collected map[int]string

func (c collected) done(tag int, r client.Result, err error) {
	text := fmt.Sprint(r.Outcome.Status)
	switch {
	case err != nil:
		text = err.Error()
	case r.Duplicate:
		text = fmt.Sprintf("duplicate of %d", r.Seq)
	}
	if again, ok := c[tag]; ok {
		text = again + ", again: " + text
	}
	c[tag] = text
}

func TestPipeline(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	b.answer(t, `{"status":201}`)
	got := make(collected)
	p, err := b.client(t, limit).Pipeline(got.done)
	if err != nil {
		t.Fatal(err)
	}
	for tag, m := range []client.Message{
		{Subject: "lapse.write.upsert.orders.1", ID: "a"},
		{Subject: "lapse.write.upsert.orders.1", ID: "a"},
		{Subject: "lapse.write.upsert.orders.2", Body: make([]byte, 2<<20)},
		{Subject: "lapse.write.upsert.orders.3"},
	} {
		if err := p.Send(t.Context(), m, tag); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := collected{
		0: "201", 1: "duplicate of 1", 3: "201",
		2: "the message is larger than the server's maximum payload of 1048576 bytes: a document may have 8 KiB less than " +
			"that",
	}
	// The bench also answers the duplicate, and its answer may come before the acknowledgement.
	if got[1] == "201" {
		want[1] = "201"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A pipeline has at most 1,000 messages in flight, and sends the next one after an outcome.
// The log has the messages in the order of sending.
func TestPipelineIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	replies := make(chan string, 3000)
	sub, err := b.nc.Subscribe("lapse.write.>", func(msg *nats.Msg) { replies <- msg.Header.Get(wire.HeaderReplyTo) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	got := make(collected)
	p, err := b.client(t, limit).Pipeline(got.done)
	if err != nil {
		t.Fatal(err)
	}
	const all = 2500
	sent := make(chan int, all)
	go func() {
		defer close(sent)
		for n := range all {
			if err := p.Send(t.Context(), client.Message{Subject: fmt.Sprintf("lapse.write.upsert.orders.%d", n)},
				n); err != nil {
				t.Error(err)
				return
			}
			sent <- n
		}
	}()
	for range 1000 {
		<-sent
	}
	for answered := range all {
		if err := b.nc.Publish(<-replies, []byte(`{"status":201}`)); err != nil {
			t.Fatal(err)
		}
		if answered < all-1000 {
			<-sent // there is room for exactly one more
			if n := len(sent); n > 0 {
				t.Fatalf("%d messages were sent without an outcome for each", n)
			}
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != all {
		t.Errorf("%d are done, want %d", len(got), all)
	}
	stream, err := b.js.Stream(t.Context(), "LAPSE_LOG")
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{1, 1000, 1001, all} {
		msg, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("lapse.write.upsert.orders.%d", seq-1); msg.Subject != want {
			t.Errorf("message %d is %s, want %s", seq, msg.Subject, want)
		}
	}
}

// When no outcome comes any more, a pipeline fails, and says of each message whether the log
// has it.
func TestPipelineWithoutOutcomes(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	got := make(collected)
	p, err := b.client(t, 5*time.Second).Pipeline(got.done)
	if err != nil {
		t.Fatal(err)
	}
	var sendErr error
	for n := 0; sendErr == nil; n++ {
		sendErr = p.Send(t.Context(), client.Message{Subject: "lapse.write.touch.orders.1"}, n)
		if n > 1000 {
			t.Fatal("more than 1,000 messages are in flight")
		}
	}
	closeErr := p.Close(t.Context())
	for _, err := range []error{sendErr, closeErr} {
		wantError(t, err, "nothing was acknowledged or applied for 5s")
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("error %v is not ErrUnavailable", err)
		}
	}
	if len(got) != 1000 {
		t.Errorf("%d are done, want 1000", len(got))
	}
	for tag, text := range got {
		if !strings.Contains(text, fmt.Sprintf("durable (sequence %d in the log)", tag+1)) || strings.Contains(text,
			"again") {
			t.Fatalf("message %d: %s", tag, text)
		}
	}
}

// Close reports the failure of the pipeline, also if the failure makes room before Close sees
// it.
func TestCloseReportsTheFailureOfAPipeline(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	c := b.client(t, short)
	for i := range 5 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			p, err := c.Pipeline(make(collected).done)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Send(t.Context(), client.Message{Subject: "lapse.write.touch.orders.1"}, 0); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(t.Context()); !errors.Is(err, client.ErrUnavailable) {
				t.Fatalf("error %v is not ErrUnavailable", err)
			}
		})
	}
}

func TestPipelineInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	got := make(collected)
	p, err := b.client(t, limit).Pipeline(got.done)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := p.Send(ctx, client.Message{Subject: "lapse.write.touch.orders.1"}, 7); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if text := got[7]; !strings.HasPrefix(text, "context canceled: the message ") {
		t.Errorf("done: %q", text)
	}
}

func TestPipelineWithoutLapse(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	got := make(collected)
	p, err := b.client(t, 2*time.Second).Pipeline(got.done)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Send(t.Context(), client.Message{Subject: "lapse.write.touch.orders.1"}, 1)
	if err == nil {
		err = p.Close(t.Context())
	}
	wantError(t, err, "no lapse answers at nats://127.0.0.1")
	if !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("error %v is not ErrUnavailable", err)
	}
	if keys := slices.Collect(maps.Keys(got)); !slices.Equal(keys, []int{1}) {
		t.Errorf("done: %v", got)
	}
}
