package streams

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options() Options {
	return Options{Prefix: wire.DefaultPrefix, Partitions: 16, MaxPayload: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
}

// TestProvision: what is absent is made as it has to be, what is there is left as it is,
// and a limit is changed only if it is given.
func TestProvision(t *testing.T) {
	js := natstest.Connect(t, server.Options{})
	made, err := Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	if c := made.Log.CachedInfo().Config; !c.AllowBatchPublish || !c.AllowDirect || c.Duplicates != 2*time.Minute || c.MaxAge != 0 {
		t.Errorf("the log is %+v", c)
	}
	if c := made.Events.CachedInfo().Config; c.MaxAge != 7*24*time.Hour {
		t.Errorf("the stream of events is %+v", c)
	}
	if made.MaxBody != 1<<20-Reserve || made.Replicas != 1 {
		t.Errorf("made %+v", made)
	}

	day := 24 * time.Hour
	o := options()
	o.LogMaxAge, o.MaxPayload = &day, 1<<21
	changed, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	if c := changed.Log.CachedInfo().Config; c.MaxAge != day || changed.ID != made.ID || changed.MaxBody != made.MaxBody {
		t.Errorf("with another age the log is %+v, of %+v", c, changed)
	}
	again, err := Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	if c := again.Log.CachedInfo().Config; c.MaxAge != day {
		t.Errorf("without an age the log is %+v", c)
	}
}

// TestProvisionRefuses: a stream by which the log would be read wrongly, or lose
// something, is refused with the reason, and left as it is.
func TestProvisionRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*jetstream.StreamConfig)
		says  string
	}{
		{"somebody else's", func(c *jetstream.StreamConfig) { c.Metadata = nil }, "it was not created by lapse"},
		{"another number of partitions", func(c *jetstream.StreamConfig) { c.Metadata[partitionsKey] = "8" }, "it was created with 8 partitions, and 16 were asked for"},
		{"another format", func(c *jetstream.StreamConfig) { c.Metadata[formatKey] = "9" }, "its lapse-format is 9, and this version of lapse has 1"},
		{"other subjects", func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[1:] }, "and have to be"},
		{"rewritten subjects", func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "lapse.write.*.*.*", Destination: "lapse.log.{{partition(16,2,3)}}"}
		}, "it rewrites subjects"},
		{"messages that are gone once read", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, "its retention is Interest, and has to be Limits"},
		{"no direct access", func(c *jetstream.StreamConfig) { c.AllowDirect = false }, "it does not allow direct access"},
		{"no acknowledgements", func(c *jetstream.StreamConfig) { c.NoAck, c.AllowBatchPublish = true, false }, "it does not acknowledge"},
		{"the last message alone", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, "it keeps only 1 messages of a subject"},
		{"in memory", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "its storage is Memory, and has to be File"},
	} {
		t.Run(c.name, func(t *testing.T) {
			js := natstest.Connect(t, server.Options{})
			made, err := Provision(t.Context(), js, options())
			if err != nil {
				t.Fatal(err)
			}
			config := made.Log.CachedInfo().Config
			c.spoil(&config)
			if err := js.DeleteStream(t.Context(), config.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			if _, err := Provision(t.Context(), js, options()); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
		})
	}
}
