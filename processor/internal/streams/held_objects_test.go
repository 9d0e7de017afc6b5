//go:build held

package streams

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// newObjects provisions the streams of a prefix, whose objects have small pieces.
func newObjects(t *testing.T, js jetstream.JetStream, prefix string) (*Streams, *Objects) {
	t.Helper()
	o := options()
	o.Prefix = wire.Prefix(prefix)
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	s.Snapshots.piece = 10
	return s, s.Snapshots
}

// put stores objects.
func put(t *testing.T, b *Objects, data []byte, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := b.Put(t.Context(), name, data); err != nil {
			t.Error(err)
		}
	}
}

// whole checks that there is an object, and what it is.
func whole(t *testing.T, b *Objects, name string, want []byte) {
	t.Helper()
	if got, err := b.Get(t.Context(), name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is %q, %v, want %q", name, got, err, want)
	}
}

// connectAgain connects to a server, so that the client is soon there again when it has lost its connection.
func connectAgain(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, natstest.Patient, nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { nc.Close(); <-closed })
	return natstest.JetStream(t, nc)
}

var before, after = []byte("what the object was before, in four pieces"), []byte("and then, in a few other ones")

// TestHeldObjectsGet: another owner stores an object anew, or removes it, while a process reads its pieces. The process
// gets what the object was, what it is, or nothing, and no mixture: a snapshot would be damaged.
func TestHeldObjectsGet(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	for i, happen := range map[string]func(*Objects) error{
		"stored anew": func(b *Objects) error { return b.Put(context.Background(), "0.1.0", after) },
		"removed":     func(b *Objects) error { return b.Remove(context.Background(), "0.1") },
	} {
		t.Run(i, func(t *testing.T) {
			gap := 0
			held.Each(t, "processor/internal/streams.Objects.Get", held.Write, func(t *testing.T, during func(func())) {
				gap++
				_, b := newObjects(t, js, fmt.Sprint("get", len(i), "-", gap))
				put(t, b, before, "0.1.0")
				during(func() {
					if err := happen(b); err != nil {
						t.Error(err)
					}
				})
				got, err := b.Get(t.Context(), "0.1.0")
				if err != nil || got != nil && !bytes.Equal(got, before) && !bytes.Equal(got, after) {
					t.Errorf("it reads %q, %v", got, err)
				}
			})
		})
	}
}

// TestHeldObjectsPut: the connection is lost between two pieces. An object that was not finished is none, and its name
// is known; stored once more it is whole, and nothing else is left of it.
func TestHeldObjectsPut(t *testing.T) {
	js, gap := connectAgain(t, natstest.Start(t, natstest.Options{})), 0
	held.Each(t, "processor/internal/streams.Objects.Put", held.Reconnection, func(t *testing.T, during func(func())) {
		gap++
		_, b := newObjects(t, js, fmt.Sprint("put", gap))
		during(held.LoseConnections)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := b.Put(ctx, "0.1.0", before); err != nil {
			if err := js.Conn().FlushTimeout(time.Minute); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Get(t.Context(), "0.1.0"); err != nil || got != nil && !bytes.Equal(got, before) {
				t.Errorf("of a part it reads %q, %v", got, err)
			}
			put(t, b, before, "0.1.0")
		}
		whole(t, b, "0.1.0", before)
		if err := b.Remove(t.Context(), "0.1"); err != nil {
			t.Fatal(err)
		}
		if info, err := b.stream.Info(t.Context()); err != nil || info.State.Msgs != 0 {
			t.Errorf("%d messages are left, %v", info.State.Msgs, err)
		}
	})
}

// TestHeldObjectsRemove: an owner removes a generation, whose former owner stores another object of it at that moment,
// and one of a generation that stays. Whatever is left of the first one has a name, so the next snapshot removes it: a
// message without one would stay for good, and the files with it (G10).
func TestHeldObjectsRemove(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	held.Each(t, "processor/internal/streams.Objects.Remove", held.Write, func(t *testing.T, during func(func())) {
		gap++
		_, b := newObjects(t, js, fmt.Sprint("remove", gap))
		put(t, b, before, "0.1.0", "0.1.1")
		put(t, b, after, "0.10.0")
		during(func() { put(t, b, after, "0.1.2", "0.10.0", "0.10.1") })
		if err := b.Remove(t.Context(), "0.1"); err != nil {
			t.Fatal(err)
		}
		names, err := b.Names(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(names, "0.1.0") || slices.Contains(names, "0.1.1") {
			t.Errorf("what was removed is still there: %v", names)
		}
		if slices.Contains(names, "0.1.2") {
			if err := b.Remove(t.Context(), "0.1"); err != nil {
				t.Fatal(err)
			}
		}
		names, err = b.Names(t.Context())
		if err != nil || len(names) == 0 {
			t.Fatalf("there are %v, %v", names, err)
		}
		for _, name := range names {
			whole(t, b, name, after)
		}
		const each = 3 + 1 // the pieces of an object, and what is known of it
		if info, err := b.stream.Info(t.Context()); err != nil || info.State.Msgs != uint64(len(names))*each {
			t.Errorf("there are %d messages, %v, of %v", info.State.Msgs, err, names)
		}
	})
}

// TestHeldFilling: while a process ends the file of the events, and that of the snapshots, clients are told events, and
// an owner stores an object; and a former owner ends the same file of the events. Nothing of it is lost, and nothing
// counts as lost (G12).
func TestHeldFilling(t *testing.T) {
	js, runs := natstest.Connect(t, natstest.Options{}), 0
	for _, operation := range []string{"Filling.Fill"} {
		held.Each(t, "processor/internal/streams."+operation, held.Write, func(t *testing.T, during func(func())) {
			runs++
			s, _ := newObjects(t, js, fmt.Sprint("fill", runs))
			prefix := wire.Prefix(fmt.Sprint("fill", runs))
			published := uint64(0)
			publish := func() {
				published++
				if _, err := js.Publish(t.Context(), prefix.Rejected("x"), nil); err != nil {
					t.Error(err)
				}
			}
			publish()
			f := s.EventsFilling(prefix, false)
			during(func() {
				publish()
				if _, err := f.Fill(t.Context(), js); err != nil {
					t.Error(err)
				}
				publish()
			})
			if _, err := f.Fill(t.Context(), js); err != nil {
				t.Fatal(err)
			}
			publish()
			info, err := s.Events.Info(t.Context())
			if err != nil || info.State.Msgs != published {
				t.Fatalf("there are %d events, %v, want %d", info.State.Msgs, err, published)
			}
			if err := s.NewEventsWatch().Check(t.Context(), info); err != nil {
				t.Error(err)
			}
		})
	}
	held.Each(t, "processor/internal/streams.Filling.fill", held.Write, func(t *testing.T, during func(func())) {
		runs++
		s, b := newObjects(t, js, fmt.Sprint("fill", runs))
		put(t, b, before, "0.1.0")
		during(func() { put(t, b, after, "0.2.0") })
		last, err := s.ObjectsFilling().Fill(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		whole(t, b, "0.1.0", before)
		whole(t, b, "0.2.0", after)
		if info, err := b.stream.Info(t.Context()); err != nil || info.State.LastSeq != last || info.State.Msgs != 6+4 {
			t.Errorf("the stream has %d messages up to %d, %v; the filling ended at %d", info.State.Msgs,
				info.State.LastSeq, err, last)
		}
	})
}
