package processor

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink/wire"
)

// model returns the oracle's model of the stored log, and the events that are stored.
func (r *rig) model() (*oracle.Model, []oracle.Message) {
	r.t.Helper()
	ctx := r.t.Context()
	logs, published := prefix.LogStream(), prefix.EventsStream()
	if r.copied {
		logs, published = r.copyOf(logs), r.copyOf(published)
	}
	log, err := r.js.Stream(ctx, prefix.LogStream())
	if err != nil {
		r.t.Fatal(err)
	}
	m := oracle.NewModel(oracle.Settings{
		Created: wire.Time(log.CachedInfo().Created.UnixMilli()),
		MaxBody: int(r.nc.MaxPayload()) - 8<<10,
	})
	events, err := stored.Read(ctx, r.js, published, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	events = slices.DeleteFunc(events,
		func(m stored.Message) bool { return strings.HasPrefix(m.Subject, string(prefix)+".fence.") })
	messages, err := stored.Read(ctx, r.js, logs, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, msg := range messages {
		if err := m.Apply(msg); err != nil {
			r.t.Fatal(err)
		}
	}
	return m, events
}

// agrees compares the events and the reads of a new Reader with the oracle. Call it once
// nothing changes any more: it expects only what follows from the log as it is.
func (r *rig) agrees() {
	r.t.Helper()
	m, events := r.model()
	reader := r.newReader()
	diff := m.CompareEvents(events, m.LogTime())
	diff = append(diff, m.CompareReads(r.t.Context(), readers.ByReader(reader),
		func() wire.Time { return wire.Time(time.Now().UnixMilli()) })...)
	if len(diff) > 0 {
		r.t.Errorf("the oracle finds:\n%s", diff)
	}
	for _, name := range m.Collections() {
		count, err := reader.Count(r.t.Context(), name)
		if err != nil || count.Expired != 0 {
			r.t.Errorf("count of %s is %+v (%v), want none expired", name, count, err)
		}
	}
}

// copyAll makes copies of the log and of the stream of events, which keep what lapse truncates. A
// process has to run, as it makes the streams.
func (r *rig) copyAll() {
	r.t.Helper()
	for _, name := range []string{prefix.LogStream(), prefix.EventsStream()} {
		eventually(r.t, "the streams are there", func() bool {
			_, err := r.js.CreateStream(r.t.Context(),
				jetstream.StreamConfig{Name: "COPY_" + name, Mirror: &jetstream.StreamSource{Name: name}})
			return err == nil
		})
		eventually(r.t, "the copy has begun", func() bool { // an owner that takes over stores something in both
			s, err := r.js.Stream(r.t.Context(), "COPY_"+name)
			return err == nil && s.CachedInfo().State.Msgs > 0
		})
	}
	r.copied = true
}

// copyOf is the name of the copy of a stream, when it has everything.
func (r *rig) copyOf(name string) string {
	r.t.Helper()
	eventually(r.t, "the copy of the stream has everything", func() bool {
		from, err := r.js.Stream(r.t.Context(), name)
		if err != nil {
			r.t.Fatal(err)
		}
		info, err := from.Info(r.t.Context(), jetstream.WithDeletedDetails(true))
		if err != nil {
			r.t.Fatal(err)
		}
		to, err := r.js.Stream(r.t.Context(), "COPY_"+name)
		if err != nil {
			r.t.Fatal(err)
		}
		last := info.State.LastSeq // of those that are still there
		for last >= info.State.FirstSeq && slices.Contains(info.State.Deleted, last) {
			last--
		}
		return info.State.Msgs == 0 || to.CachedInfo().State.LastSeq >= last
	})
	return "COPY_" + name
}
