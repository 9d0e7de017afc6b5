package processor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink/wire"
)

// storedMessage is a message of a stream.
type storedMessage struct {
	seq     uint64
	at      time.Time
	subject string
	header  nats.Header
	data    []byte
}

// readStream reads all of a stream, from a sequence on.
func (r *rig) readStream(name string, from uint64) []storedMessage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	messages, err := stored.Read(ctx, r.js, name, from)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []storedMessage
	for _, m := range messages {
		all = append(all, storedMessage{m.Seq, time.UnixMilli(int64(m.At)), m.Published(), m.Header, m.Data})
	}
	return all
}

// outputs are all messages of the stream of events, without fences.
func (r *rig) outputs() []storedMessage {
	r.t.Helper()
	return slices.DeleteFunc(r.readStream(prefix.EventsStream(), 1), func(m storedMessage) bool {
		return strings.HasPrefix(m.subject, "lapse.fence.")
	})
}

// event is an expiry event as it was stored.
type event struct {
	wire.Event
	stored storedMessage
}

// events are all expiry events that are stored of a collection; those that came
// early fail the test.
func (r *rig) events(collection string) []event {
	r.t.Helper()
	var all []event
	for _, m := range r.outputs() {
		if !strings.HasPrefix(m.subject, "lapse.expired."+collection+".") {
			continue
		}
		var e event
		if err := json.Unmarshal(m.data, &e.Event); err != nil {
			r.t.Fatal(err)
		}
		e.stored = m
		if m.at.UnixMilli() < int64(e.ExpiredAt) {
			r.t.Errorf("%s was stored at %s: early", m.data, m.at)
		}
		all = append(all, e)
	}
	return all
}

// storedOf is how many expiry events of a collection are stored.
func (r *rig) storedOf(collection string) (n int) {
	r.t.Helper()
	s, err := r.js.Stream(context.Background(), prefix.EventsStream())
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(context.Background(), jetstream.WithSubjectFilter("lapse.expired."+collection+".>"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, k := range info.State.Subjects {
		n += int(k)
	}
	return n
}

// waitEvents waits until a collection has n expiry events. The limit is for the next one, and not for all of them.
func (r *rig) waitEvents(collection string, n int) []event {
	r.t.Helper()
	for stored := r.storedOf(collection); stored < n; {
		before := stored
		eventually(r.t, fmt.Sprintf("more than %d of %d events of %s", before, n, collection), func() bool {
			stored = r.storedOf(collection)
			return stored > before
		})
	}
	all := r.events(collection)
	if len(all) != n {
		r.t.Fatalf("%d events of %s, want %d: %+v", len(all), collection, n, all)
	}
	return all
}

// caughtUp waits until a process has applied all that is in the log and reaped all that
// is due.
func (r *rig) caughtUp(p *process) {
	r.t.Helper()
	r.eachCaughtUp(func() *process { return p })
}

// expires waits until a version has expired that was written last, and until all of its collection that has
// expired by then is reaped. That nothing is due is not enough just after a deadline: the owner may not have
// looked yet.
func (r *rig) expires(p *process, collection string, last wire.Outcome) {
	r.t.Helper()
	eventually(r.t, "it has expired", func() bool { return time.Now().UnixMilli() > int64(*last.ExpiresAt) })
	r.reaped(collection)
	r.caughtUp(p)
}

// reaped waits until nothing of a collection is both expired and there.
func (r *rig) reaped(collection string) {
	r.t.Helper()
	eventually(r.t, "all events are published", func() bool {
		c, err := r.reader.Count(context.Background(), collection)
		return err == nil && c.Expired == 0
	})
}

// eachCaughtUp is the same where one process may follow another.
func (r *rig) eachCaughtUp(current func() *process) {
	r.t.Helper()
	log, err := r.js.Stream(context.Background(), prefix.LogStream())
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := log.Info(context.Background()) // owners that take the shard from each other append ticks
	if err != nil {
		r.t.Fatal(err)
	}
	comes(r.t, "the log is applied", func() error {
		p := current()
		status := p.current().status
		if at, last := status.Applied.Load(), info.State.LastSeq; at < last {
			return fmt.Errorf("it is at %d of %d", at, last)
		}
		if since := status.Due.Load(); since != 0 {
			return fmt.Errorf("something is due since %d", since)
		}
		if left := r.generationKeys(); len(left) > 0 {
			return fmt.Errorf("old generations are left: %v", left)
		}
		return p.Ready()
	})
}
