package processor

import (
	"time"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink/wire"
)

// model returns the oracle's model of the stored log, and the events that are stored.
func (r *rig) model() (*oracle.Model, []oracle.Message) {
	r.t.Helper()
	ctx := r.t.Context()
	log, err := r.js.Stream(ctx, prefix.LogStream())
	if err != nil {
		r.t.Fatal(err)
	}
	m := oracle.NewModel(oracle.Settings{
		Partitions: r.opts.Partitions, Created: wire.Time(log.CachedInfo().Created.UnixMilli()),
		MaxBody: int(r.nc.MaxPayload()) - 8<<10,
	})
	events, err := stored.Events(ctx, r.js, prefix, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	messages, err := stored.Read(ctx, r.js, prefix.LogStream(), 1)
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
	diff = append(diff, m.CompareReads(r.t.Context(), oracle.ByReader(reader), func() wire.Time { return wire.Time(time.Now().UnixMilli()) })...)
	if len(diff) > 0 {
		r.t.Errorf("the oracle finds:\n%s", diff)
	}
	for _, name := range m.Collections() {
		conf, err := reader.Config(r.t.Context(), name)
		if err != nil || conf.IndexBuilding {
			r.t.Errorf("configuration of %s is %+v (%v), want that no index is being built", name, conf, err)
		}
		count, err := reader.Count(r.t.Context(), name)
		if err != nil || count.Expired != 0 {
			r.t.Errorf("count of %s is %+v (%v), want none expired", name, count, err)
		}
	}
}
