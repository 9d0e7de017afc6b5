package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// stored is a message of a stream.
type stored struct {
	seq     uint64
	at      time.Time
	subject string
	header  nats.Header
	data    []byte
}

// readStream reads all of a stream, from a sequence on.
func (r *rig) readStream(name string, from uint64) []stored {
	r.t.Helper()
	s, err := r.js.Stream(context.Background(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []stored
	for seq := max(from, s.CachedInfo().State.FirstSeq); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(context.Background(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, stored{m.Sequence, m.Time, m.Subject, m.Header, m.Data})
	}
	return all
}

// said is all that the stream of events holds, without fences.
func (r *rig) said() []stored {
	r.t.Helper()
	return slices.DeleteFunc(r.readStream(prefix.EventsStream(), 1), func(m stored) bool {
		return strings.HasPrefix(m.subject, "lapse.fence.")
	})
}

// event is an expiry event as it was stored.
type event struct {
	wire.Event
	stored stored
}

// events are all expiry events that are stored of a collection; those that came
// early fail the test.
func (r *rig) events(collection string) []event {
	r.t.Helper()
	var all []event
	for _, m := range r.said() {
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

// waitEvents waits until a collection has n expiry events.
func (r *rig) waitEvents(collection string, n int) []event {
	r.t.Helper()
	s, err := r.js.Stream(context.Background(), prefix.EventsStream())
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, fmt.Sprintf("%d events of %s", n, collection), func() bool {
		info, err := s.Info(context.Background(), jetstream.WithSubjectFilter("lapse.expired."+collection+".>"))
		if err != nil {
			r.t.Fatal(err)
		}
		sum := 0
		for _, k := range info.State.Subjects {
			sum += int(k)
		}
		return sum >= n
	})
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

// eachCaughtUp is the same where one process may follow another.
func (r *rig) eachCaughtUp(current func() *process) {
	r.t.Helper()
	log, err := r.js.Stream(context.Background(), prefix.LogStream())
	if err != nil {
		r.t.Fatal(err)
	}
	comes(r.t, "the log is applied", func() error {
		info, err := log.Info(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		p := current()
		for _, part := range p.partitions {
			if at, last := part.applied.Load(), info.State.LastSeq; at < last {
				return fmt.Errorf("partition %d is at %d of %d", part.id, at, last)
			}
			if since := part.due.Load(); since != 0 {
				return fmt.Errorf("partition %d has something that is due since %d", part.id, since)
			}
		}
		return p.Ready()
	})
}
