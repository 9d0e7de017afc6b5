package oracle

import (
	"context"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink/wire"
)

// Logs are the models of the logs of all shards, for a test that compares as it goes along.
type Logs struct {
	js     jetstream.JetStream
	models []*Model
}

// NewLogs returns the models of the logs, which have read nothing yet. The settings without Created.
func NewLogs(js jetstream.JetStream, set Settings) *Logs { return &Logs{js: js, models: set.models()} }

// CatchUp applies what is new in the logs.
func (l *Logs) CatchUp(ctx context.Context) error {
	for _, m := range l.models {
		if err := m.catchUp(ctx, l.js); err != nil {
			return err
		}
		m.Forget()
	}
	return nil
}

// Live returns the documents that must be readable at an instant, if the logs grow no further.
func (l *Logs) Live(at wire.Time) map[Name]Live {
	live := map[Name]Live{}
	for _, m := range l.models {
		maps.Copy(live, m.Live(at))
	}
	return live
}

// Configs returns a collection's configuration in each log.
func (l *Logs) Configs(collection string) (configs []wire.Config) {
	for _, m := range l.models {
		configs = append(configs, m.Config(collection))
	}
	return configs
}

// catchUp reads from the stream when its log was made, and applies what is new in it.
func (m *Model) catchUp(ctx context.Context, js jetstream.JetStream) error {
	name := m.log().Stream()
	if m.set.Created == 0 {
		info, err := stored.Info(ctx, js, name)
		if err != nil {
			return err
		}
		m.set.Created = wire.Time(wire.Identity(info.Config.Metadata, info.Created) / int64(time.Millisecond))
		if m.restored, _, err = wire.ParseRestored(info.Config.Metadata); err != nil {
			return err
		}
		region, err := wire.ParseRegion(info.Config.Metadata)
		if err != nil {
			return err
		}
		m.former = region.Former
	}
	log, err := stored.Read(ctx, js, name, m.seq+1)
	if err != nil {
		return err
	}
	for _, msg := range log {
		if err := m.Apply(msg); err != nil {
			return err
		}
	}
	return nil
}
