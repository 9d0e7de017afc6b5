package forward

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestCountDead: dead letters are counted by durable name, and the last ones are read, over gaps too. Nobody answers a
// request for a name under which nothing runs.
func TestCountDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := wire.DefaultPrefix
	if all, err := CountDead(t.Context(), r.js, p, 5); err != nil || len(all) != 0 {
		t.Errorf("without a stream: %v, %v", all, err)
	}
	stream, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.DeadStream(),
		Subjects: []string{p.Dead("*", "*")}})
	if err != nil {
		t.Fatal(err)
	}
	const letters = 100
	for n := 1; n <= letters; n++ {
		name := "a"
		if n%10 == 0 {
			name = "b"
		}
		msg := &nats.Msg{Subject: p.Dead(name, fmt.Sprint("d", n%7)), Data: fmt.Appendf(nil, `{"n":%d}`, n),
			Header: nats.Header{
				headerReason: {"refused"}, "ce-source": {"/lapse/17/collections/orders"}, "ce-id": {fmt.Sprint("orders/1/", n)},
			}}
		if _, err := r.js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	for seq := uint64(30); seq < 99; seq++ {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	all, err := CountDead(t.Context(), r.js, p, 5)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	got := ""
	for _, d := range all {
		got += fmt.Sprint(d.Durable, d.Count)
		for _, l := range d.Last {
			got += " " + l.WithoutEvent(func(body []byte) string { return string(body) }).Text
		}
		got += ";"
	}
	// 1 to 29, 99 and 100 are left; the last five are 100, 99, 29, 28 and 27.
	if want := `a28 {"n":99} {"n":29} {"n":28} {"n":27};b3 {"n":100};`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := AskAgain(t.Context(), r.c.Conn(), p, "", "a"); !errors.Is(err, ErrNoForwarder) {
		t.Errorf("nobody runs: %v", err)
	}
}

// TestLettersCannotBeRead: dead letters that cannot be read are an error.
func TestLettersCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	d, err := openDead(t.Context(), r.c, wire.DefaultPrefix, "a")
	if err != nil {
		t.Fatal(err)
	}
	letter := func(Letter) error { return nil }
	if err := r.js.DeleteStream(t.Context(), wire.DefaultPrefix.DeadStream()); err != nil {
		t.Fatal(err)
	}
	if err := d.each(t.Context(), letter); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream is gone: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if all, err := CountDead(ended, r.js, wire.DefaultPrefix, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody answers: %v, %v", all, err)
	}
}

// TestCountDeadLooksAtTheEndAlone: of letters that are far from the end of the stream, it counts all and reads none. It
// reads those that are nearer, whatever lies between them.
func TestCountDeadLooksAtTheEndAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := wire.DefaultPrefix
	stream, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.DeadStream(), FirstSeq: 1000,
		Subjects: []string{p.Dead("*", "*")}})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(name string, n int) {
		t.Helper()
		for range n {
			if _, err := r.js.PublishAsync(p.Dead(name, "d"), []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		<-r.js.PublishAsyncComplete()
	}
	publish("far", 1000)
	publish("gone", lettersMost*3/4)
	publish("near", 2)
	publish("gone", lettersMost*3/4)
	publish("near", 1)
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(p.Dead("gone", "d"))); err != nil {
		t.Fatal(err)
	}
	all, err := CountDead(t.Context(), r.js, p, 10)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if far := all[0]; far.Durable != "far" || far.Count != 1000 || len(far.Last) > 0 {
		t.Errorf("of %s, %d letters and the last %d", far.Durable, far.Count, len(far.Last))
	}
	if near := all[1]; near.Durable != "near" || near.Count != 3 || len(near.Last) != 3 {
		t.Errorf("of %s, %d letters and the last %d", near.Durable, near.Count, len(near.Last))
	}
	if all, err = CountDead(t.Context(), r.js, p, 2); err != nil || len(all[1].Last) != 2 {
		t.Errorf("two letters at most: %+v, %v", all, err)
	}
}
