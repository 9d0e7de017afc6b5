package serve

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/cmd/internal/backup"
	"github.com/seed18712806/lapse/cmd/internal/httpapi"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/lease"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestPrefixes: whatever takes a prefix refuses one that is not valid. Only options that say so
// take an empty one for the default.
func TestPrefixes(t *testing.T) {
	opts := options(t)
	srv, err := startNATS(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	nc, err := connectNATS(Options{NATS: srv.URL, Logger: opts.Logger}, nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	store := redis.NewClient(&redis.Options{})
	defer func() { _ = store.Close() }()

	for what, takes := range map[string]struct {
		byDefault bool
		prefix    func(wire.Prefix) error
	}{
		"a process": {prefix: func(p wire.Prefix) error {
			o := options(t)
			o.Processor.Prefix = p
			return Run(t.Context(), o)
		}},
		"the data directory": {prefix: func(p wire.Prefix) error { _, err := newDataWatch(t.TempDir(), p, 1, nil, nil); return err }},
		"the HTTP API":       {prefix: func(p wire.Prefix) error { _, err := httpapi.New(httpapi.Options{Prefix: p}); return err }},
		"a backup": {prefix: func(p wire.Prefix) error {
			_, err := backup.Take(t.Context(), backup.Source{NATS: nc, Prefix: p}, nil)
			return err
		}},
		"a processor": {true, func(p wire.Prefix) error {
			_, err := processor.New(nc, store, processor.Options{Prefix: p})
			return err
		}},
		"a member": {true, func(p wire.Prefix) error { _, err := lease.New(nc, lease.Options{Prefix: p}); return err }},
		"a reader": {true, func(p wire.Prefix) error {
			_, err := sink.NewReader(store,
				sink.ReaderOptions{Prefix: p})
			return err
		}},
		"the reads": {true, func(p wire.Prefix) error {
			s, err := service.Start(nc, nil, service.Options{Prefix: p})
			if err == nil {
				s.Stop()
			}
			return err
		}},
		"a client": {true, func(p wire.Prefix) error {
			c, err := client.Connect(client.Options{Server: srv.URL, Prefix: p})
			if err == nil {
				c.Close()
			}
			return err
		}},
	} {
		if err := takes.prefix("a.b"); !errors.Is(err, wire.ErrInvalidName) {
			t.Errorf("%s: the prefix a.b: %v", what, err)
		}
		err := takes.prefix("")
		if takes.byDefault && err != nil {
			t.Errorf("%s: no prefix: %v", what, err)
		}
		if !takes.byDefault {
			wantError(t, err, `prefix "" is not valid: use 1 to 32 of `)
		}
	}
}
