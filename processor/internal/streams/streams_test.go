package streams

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) {
	// It waits for the answer of a source that has ended, and touches nothing after it.
	natstest.Main(m)
}

func options() Options {
	return Options{Prefix: wire.DefaultPrefix, Objects: true, MaxPayload: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
}

// TestProvision: it creates what is absent, leaves what is present, and changes a limit only
// if the options have one.
func TestProvision(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	made, err := Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	if c := made.Log.CachedInfo().Config; !c.AllowBatchPublish || !c.AllowDirect || c.Duplicates != 2*time.Minute ||
		c.MaxAge != 0 {
		t.Errorf("the log is %+v", c)
	}
	if c := made.Events.CachedInfo().Config; c.MaxAge != 7*24*time.Hour {
		t.Errorf("the stream of events is %+v", c)
	}
	if made.MaxBody != 1<<20-Reserve || made.MaxLevels != 1000 {
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

// TestProvisionRefuses: it refuses a log that could be misread or lose messages, with the
// reason.
func TestProvisionRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*jetstream.StreamConfig)
		want  string
	}{
		{"somebody else's", func(c *jetstream.StreamConfig) { c.Metadata = nil }, "it was not created by lapse"},
		{"another number of shards", func(c *jetstream.StreamConfig) { c.Metadata[wire.ShardsKey] = "8" },
			"it was created with 8 shards, and the options have 1"},
		{"another format", func(c *jetstream.StreamConfig) { c.Metadata[wire.FormatKey] = "9" }, "stream LAPSE_LOG has the " +
			"format \"9\", and this version of lapse reads 3 alone: bring the documents over with lapse export"},
		{"a restore that was interrupted", func(c *jetstream.StreamConfig) { c.Metadata[wire.FormatKey] = wire.Restoring },
			"run lapse restore again"},
		{"restored from what", func(c *jetstream.StreamConfig) { c.Metadata[wire.RestoredKey] = "1 2" },
			"its lapse-restored is \"1 2\", which is not valid"},
		{"other subjects", func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[1:] }, "and must be"},
		{"rewritten subjects", func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "lapse.write.*.*.*",
				Destination: "lapse.log.{{partition(16,2,3)}}"}
		}, "it changes subjects (subject_transform) in another way"},
		{"messages that are gone once read", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
			"its retention is Interest, and must be Limits"},
		{"no direct access", func(c *jetstream.StreamConfig) { c.AllowDirect = false }, "it does not allow direct access"},
		{"messages that can be deleted", func(c *jetstream.StreamConfig) { c.DenyDelete = false },
			"single messages of it can be deleted: set deny_delete"},
		{"no acknowledgements", func(c *jetstream.StreamConfig) { c.NoAck, c.AllowBatchPublish = true, false },
			"it does not acknowledge"},
		{"the last message alone", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
			"it keeps only 1 messages per subject"},
		{"in memory", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
			"its storage is Memory, and must be File"},
	} {
		t.Run(c.name, func(t *testing.T) {
			js := natstest.Connect(t, natstest.Options{})
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
			kind := ErrMismatch
			if c.name == "another format" {
				kind = wire.ErrFormat
			}
			if _, err := Provision(t.Context(), js, options()); !errors.Is(err, kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestLevelsAreOfTheLog: a log keeps the limit of levels with which it was created, because a
// rebuild has to decide as the first run did. The logs of all shards have that of the stream of configurations.
func TestLevelsAreOfTheLog(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	set := func(s jetstream.Stream, levels string) {
		config := s.CachedInfo().Config
		config.Metadata[maxLevelsKey] = levels
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	made, err := Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	set(made.Log, "x")
	if _, err := Provision(t.Context(), js, options()); !errors.Is(err, ErrMismatch) {
		t.Errorf("a limit that is no number: %v", err)
	}
	set(made.Log, "77")
	if made, err = Provision(t.Context(), js, options()); err != nil || made.MaxLevels != 77 {
		t.Errorf("a log with another limit: %+v, %v", made, err)
	}

	o := options()
	o.Prefix, o.Shards = "sharded", 2
	configs, err := js.CreateStream(t.Context(), o.configsConfig())
	if err != nil {
		t.Fatal(err)
	}
	set(configs, "78")
	for o.Shard = range o.Shards {
		if made, err = Provision(t.Context(), js, o); err != nil || made.MaxLevels != 78 {
			t.Errorf("shard %d: %+v, %v", o.Shard, made, err)
		}
	}
}

// TestProvisionRefusesBuckets: a restore was interrupted before it began with the log. Nothing is
// created beside what it has left, or the restore could not go on.
func TestProvisionRefusesBuckets(t *testing.T) {
	for _, c := range []struct {
		name, format string
		kind         error
		want         string
	}{
		{"KV_LAPSE_CHECKPOINTS", wire.Restoring, ErrMismatch, "run lapse restore again"},
		{"OBJ_LAPSE_SNAPSHOTS", wire.Restoring, ErrMismatch, "run lapse restore again"},
		{"OBJ_LAPSE_SNAPSHOTS", "1", wire.ErrFormat, "stream OBJ_LAPSE_SNAPSHOTS has the format \"1\", and this version of " +
			"lapse reads 3 alone"},
	} {
		t.Run(c.name+" "+c.format, func(t *testing.T) {
			js := natstest.Connect(t, natstest.Options{})
			natstest.CreateStream(t, js, jetstream.StreamConfig{Name: c.name, Subjects: []string{"x"},
				Metadata: map[string]string{wire.FormatKey: c.format}})
			if _, err := Provision(t.Context(), js, options()); !errors.Is(err, c.kind) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			var all []string
			for name := range js.StreamNames(t.Context()).Name() {
				all = append(all, name)
			}
			if len(all) != 1 {
				t.Errorf("there are the streams %v", all)
			}
		})
	}
}

// TestRulesAreInTheLog: the rules of the options are appended to the log where they differ from the last ones there,
// or, if the log has none any more, from what is stored; so a rebuild decides as the first run did.
func TestRulesAreInTheLog(t *testing.T) {
	js, o := natstest.Connect(t, natstest.Options{}), options()
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	rule := func(was wire.LogRulesBody, known, open bool, prefixes ...string) uint64 {
		t.Helper()
		o.OpenCollections, o.ReplyPrefixes = open, prefixes
		seq, err := s.Rule(t.Context(), js, o, was, known)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	says := func(seq uint64, want string) {
		t.Helper()
		m, err := s.Log.GetMsg(t.Context(), seq)
		if err != nil || m.Subject != "lapse.config.$rules" || string(m.Data) != want {
			t.Errorf("message %d is %+v, %v; want the rules %s", seq, m, err, want)
		}
	}
	var none wire.LogRulesBody
	if seq := rule(none, true, false); seq != 0 {
		t.Errorf("there are rules at %d, but they say what was stored", seq)
	}
	says(rule(none, false, false), `{"open":false}`)
	first := rule(none, true, false, "b", "a", "b")
	says(first, `{"open":false,"replyPrefixes":["a","b"]}`)
	if again := rule(none, true, false, "a", "b"); again != first {
		t.Errorf("the same again is at %d, not %d", again, first)
	}
	second := rule(none, true, true, "a", "b")
	says(second, `{"open":true,"replyPrefixes":["a","b"]}`)
	says(rule(none, true, true, "a"), `{"open":true,"replyPrefixes":["a"]}`)
	if err := s.Log.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored := wire.LogRulesBody{Open: true, ReplyPrefixes: []string{"a"}}
	if seq := rule(stored, true, true, "a"); seq != 0 {
		t.Errorf("there are rules at %d, but they say what is stored", seq)
	}
	says(rule(stored, true, true), `{"open":true}`)
	if _, err := js.Publish(t.Context(), "lapse.config.$rules", []byte(`rubbish`)); err != nil {
		t.Fatal(err)
	}
	says(rule(none, true, true), `{"open":true}`)
}

// TestProvisionRefusesEvents: it refuses a stream that cannot accept every event or loses
// some, with the reason and what to do. It leaves limits that do no harm.
func TestProvisionRefusesEvents(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*jetstream.StreamConfig)
		want  string // empty if the stream is accepted
	}{
		{"tiny messages", func(c *jetstream.StreamConfig) { c.MaxMsgSize = leastMessage - 1 }, "it accepts messages of up " +
			"to 8191 bytes (max_msg_size), and an event without its document may need 8192: set it to more"},
		{"small messages", func(c *jetstream.StreamConfig) { c.MaxMsgSize = leastMessage }, ""},
		{"one message of a subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
			"it keeps only 1 messages per subject"},
		{"no more of a subject", func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.DiscardNewPerSubject, c.Discard = 5, true, jetstream.DiscardNew
		}, "it keeps only 5 messages per subject"},
		{"sealed", func(c *jetstream.StreamConfig) { c.Sealed = true }, "it is sealed"},
		{"full at some time", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1000, jetstream.DiscardNew }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			js := natstest.Connect(t, natstest.Options{})
			made, err := Provision(t.Context(), js, options())
			if err != nil {
				t.Fatal(err)
			}
			config := made.Events.CachedInfo().Config
			c.spoil(&config)
			if _, err := js.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			_, err = Provision(t.Context(), js, options())
			if c.want == "" {
				if err != nil {
					t.Errorf("it is refused: %v", err)
				}
			} else if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	t.Run("a small log", func(t *testing.T) {
		js := natstest.Connect(t, natstest.Options{})
		made, err := Provision(t.Context(), js, options())
		if err != nil {
			t.Fatal(err)
		}
		config := made.Log.CachedInfo().Config
		config.MaxMsgSize = 100
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if _, err := Provision(t.Context(), js, options()); err != nil {
			t.Errorf("it is refused: %v", err)
		}
	})
	t.Run("a tiny server", func(t *testing.T) {
		o := options()
		o.MaxPayload = Reserve
		if _, err := Provision(t.Context(), natstest.Connect(t, natstest.Options{}), o); err == nil ||
			!strings.Contains(err.Error(), "set its max_payload to more than 8192") {
			t.Errorf("error %v", err)
		}
	})
}

// TestProvisionRefusesOtherEvents: it refuses a stream of events that would not store what lapse publishes as
// lapse needs it, with the reason.
func TestProvisionRefusesOtherEvents(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*jetstream.StreamConfig)
		want  string
	}{
		{"stored later", func(c *jetstream.StreamConfig) {
			c.AllowAtomicPublish, c.AllowBatchPublish, c.PersistMode = false, false, jetstream.AsyncPersistMode
		}, "its persist_mode is async"},
		{"other subjects", func(c *jetstream.StreamConfig) { c.Subjects = []string{"lapse.expired.>", "lapse.other.>"} },
			"its subjects are [lapse.expired.> lapse.other.>], and must be"},
		{"a subject less", func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[1:] }, "and must be"},
		{"no batches", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false },
			"it does not accept all batches of messages: set allow_atomic"},
		{"a subject for each id", func(c *jetstream.StreamConfig) { c.SubjectTransform = nil },
			"it changes subjects (subject_transform) in another way"},
		{"another transform", func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "lapse.expired.*.*",
				Destination: "lapse.expired.{{wildcard(1)}}.x"}
		}, "it changes subjects (subject_transform) in another way than lapse has set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			js := natstest.Connect(t, natstest.Options{})
			made, err := Provision(t.Context(), js, options())
			if err != nil {
				t.Fatal(err)
			}
			config := made.Events.CachedInfo().Config
			c.spoil(&config)
			if err := js.DeleteStream(t.Context(), config.Name); err != nil {
				t.Fatal(err)
			}
			natstest.CreateStream(t, js, config)
			if _, err := Provision(t.Context(), js, options()); !errors.Is(err, ErrMismatch) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestOldServer: a NATS server whose streams accept no fast batches is refused by its version.
// It fails if lapse goes on, and then publishes nothing.
func TestOldServer(t *testing.T) {
	for level, want := range map[int]bool{0: false, 1: false, leastLevel - 1: false, leastLevel: true,
		leastLevel + 1: true} {
		err := judgeServer("2.12.9", level)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "nats-server 2.12.9 is too old") {
			t.Errorf("level %d: error %v, want none: %v", level, err, want)
		}
	}
}

// TestShardsProvisionedAtOnce: the shards of a prefix are provisioned for the first time at the
// same moment, as by processes that start together. All come to the same streams.
//
// It fails if a log that another shard has just created is taken for one of other configurations.
func TestShardsProvisionedAtOnce(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	const shards = 4
	for round := range 20 {
		var group errgroup.Group
		for shard := range shards {
			o := options()
			o.Prefix, o.Shards, o.Shard = wire.Prefix(fmt.Sprint("p", round)), shards, shard
			group.Go(func() error {
				s, err := Provision(t.Context(), js, o)
				if err == nil && !s.Sources(s.Configs.CachedInfo()) {
					err = fmt.Errorf("shard %d sources another stream", shard)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
