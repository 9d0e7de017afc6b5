package processor

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG11_AnotherFormatIsRefused: what another version of lapse has made, wherever it shows, is refused with the
// sentence that says what was found and how to bring the documents over. Nothing is changed. Once it is gone, lapse
// goes on.
func TestG11_AnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	metadata := func(name string) func(*rig, string) {
		return func(r *rig, format string) {
			stream, err := r.js.Stream(r.t.Context(), name)
			if err != nil {
				r.t.Fatal(err)
			}
			c := stream.CachedInfo().Config
			c.Metadata = maps.Clone(c.Metadata)
			c.Metadata[wire.FormatKey] = format
			if _, err := r.js.UpdateStream(r.t.Context(), c); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	value := func(key string) func(*rig, string) {
		return func(r *rig, format string) {
			kv, err := r.js.KeyValue(r.t.Context(), prefix.CheckpointBucket())
			if err != nil {
				r.t.Fatal(err)
			}
			entry, err := kv.Get(r.t.Context(), key)
			if err != nil {
				r.t.Fatal(err)
			}
			was, to := `"format":3`, `"format":`+format
			if !strings.Contains(string(entry.Value()), was) {
				was, to = `"format":1`, was
			}
			if _, err := kv.PutString(r.t.Context(), key, strings.Replace(string(entry.Value()), was, to, 1)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for where, c := range map[string]struct {
		what string
		set  func(r *rig, format string)
	}{
		"redis": {"it", func(r *rig, format string) {
			for _, state := range keysOf(r.t, r, "*:state") {
				r.redis.HSet(r.t.Context(), state, "format", format)
			}
		}},
		"log":        {"stream LAPSE_LOG", metadata(prefix.LogStream())},
		"events":     {"stream LAPSE_EVENTS", metadata(prefix.EventsStream())},
		"snapshots":  {"stream OBJ_LAPSE_SNAPSHOTS", metadata(prefix.SnapshotStream())},
		"checkpoint": {"the checkpoint of shard 0 in bucket LAPSE_CHECKPOINTS", value(shard.CheckpointKey(0))},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, backends[1], Options{})
			p := r.start(nil)
			p.ready(t)
			r.config("c", `{"defaultTtl":-1}`)
			r.put("c", "a", `{"ttl":1000}`)
			r.truncated(func() bool { return true })
			r.caughtUp(p)
			p.stop(t)
			c.set(r, "1")
			before, streams := r.dump(), r.streamStates()
			p = r.start(nil)
			want := c.what + ` has the format "1", and this version of lapse reads 3 alone: ` +
				`bring the documents over with lapse export`
			p.ends(t, wire.ErrFormat)
			if !strings.Contains(p.err.Error(), want) || strings.Count(p.err.Error(), "bring the documents over") != 1 ||
				!errors.As(p.err, new(*Refusal)) {
				t.Errorf("it is refused with %v, want %q once", p.err, want)
			}
			if err := p.Check(t.Context()); (where == "log" || where == "events" || where == "snapshots") &&
				!errors.Is(err, wire.ErrFormat) {
				t.Errorf("the check before: %v", err)
			}
			if diff := cmp.Diff(before, r.dump()); diff != "" {
				t.Errorf("Redis was changed:\n%s", diff)
			}
			if diff := cmp.Diff(streams, r.streamStates()); diff != "" {
				t.Errorf("the streams were changed:\n%s", diff)
			}
			c.set(r, wire.FormatText)
			r.run()
			if r.body("c", "a") == "" {
				t.Error("the document is gone")
			}
		})
	}
}

// streamStates are the streams of lapse, with their configurations and last sequences.
func (r *rig) streamStates() map[string]any {
	r.t.Helper()
	all := map[string]any{}
	for stream := range r.js.ListStreams(r.t.Context()).Info() {
		all[stream.Config.Name] = struct {
			Config      jetstream.StreamConfig
			First, Last uint64
		}{stream.Config, stream.State.FirstSeq, stream.State.LastSeq}
	}
	return all
}
