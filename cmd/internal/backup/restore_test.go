package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/wire"
)

// written runs lapse, and writes a document.
func written(t *testing.T, client *harness.Client, id string) {
	t.Helper()
	p := harness.StartProcessor(t, client.NC.ConnectedUrl(), harness.StartRedis(t, harness.RedisOptions{}).Address(),
		processor.Options{})
	client.Want(201, wire.Upsert, "c", id, `{}`)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// A restore stands still. Somebody takes it for dead and runs the command again, which removes
// what it has left, and ends. lapse starts, and clients write. Then the first one goes on.
//
// It fails if that removes a stream that it has not made, or if the same command restores once more what is complete.
func TestG7_ARestoreThatStoodStill(t *testing.T) {
	t.Parallel()
	nobody := func(context.Context) (bool, error) { return false, nil }
	first := harness.NewClient(t, natstest.Start(t, natstest.Options{}), "")
	written(t, first, "x")
	var file bytes.Buffer
	if _, err := Take(t.Context(), Source{NATS: first.NC, Prefix: wire.DefaultPrefix, Applying: nobody},
		&file); err != nil {
		t.Fatal(err)
	}
	second := harness.NewClient(t, natstest.Start(t, natstest.Options{}), "")
	restore := func(nc *nats.Conn, stands func(string)) error {
		c, err := Scan(bytes.NewReader(file.Bytes()), Until{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Restore(t.Context(), Target{NATS: nc, Applying: nobody, Progress: stands}, bytes.NewReader(file.Bytes()),
			Until{})
	}
	stood := false
	err := restore(second.NC, func(string) {
		if stood {
			return
		}
		stood = true
		if err := restore(second.NC, nil); err != nil {
			t.Fatal(err)
		}
		written(t, second, "y")
	})
	if err == nil {
		t.Error("both have restored the same streams")
	}
	if err := restore(second.NC, nil); err == nil || !strings.Contains(err.Error(), "exists: restore into servers without") {
		t.Errorf("a third time: %v", err)
	}
	for _, name := range []string{"LAPSE_LOG", "LAPSE_EVENTS", "KV_LAPSE_CHECKPOINTS", "OBJ_LAPSE_SNAPSHOTS"} {
		if _, err := second.JS.Stream(t.Context(), name); err != nil {
			t.Errorf("stream %s: %v", name, err)
		}
	}
}

// Much has expired and was rejected before a backup, and some of it between the end of its log and the end
// of its events. The restored lapse reads only the latter, and publishes none of it again.
//
// It fails if the place in the stream of events is lost with the backup: then lapse reads all of it; or if
// that of the original stays, which has passed what comes after the end of the log.
func TestG3_ARestoredTailIsShort(t *testing.T) {
	t.Parallel()
	first := harness.NewClient(t, natstest.Start(t, natstest.Options{}), "")
	redis := harness.StartRedis(t, harness.RedisOptions{})
	p := harness.StartProcessor(t, first.NC.ConnectedUrl(), redis.Address(), processor.Options{})
	const rejected, expired = 5000, 10
	first.Configure("c", `{"defaultTtl":-1}`)
	for i := range rejected {
		if _, err := first.JS.PublishAsync(wire.DefaultPrefix.Write("frob", "c", fmt.Sprint(i)), nil,
			jetstream.WithStallWait(harness.Limit)); err != nil {
			t.Fatal(err)
		}
	}
	early := first.Want(201, wire.Upsert, "c", "early", `{"ttl":1}`)
	first.ExpiryOf("c", "early", early.Etag, harness.Limit)
	var late [expired]wire.Outcome
	for i := range late {
		late[i] = first.Want(201, wire.Upsert, "c", fmt.Sprint("late", i), `{"ttl":5}`)
	}
	var file bytes.Buffer
	waited := false
	wait := func(doing string) { // until what comes after the end of the log is published too
		if waited || !strings.HasPrefix(doing, "backing up LAPSE_LOG ") {
			return
		}
		waited = true
		for i, o := range late {
			first.ExpiryOf("c", fmt.Sprint("late", i), o.Etag, harness.Limit)
		}
		harness.Until(t, harness.Limit, "the checkpoints have passed that", func(ctx context.Context) error {
			if _, err := first.JS.Publish(ctx, wire.DefaultPrefix.Log(0, 1).Tick(), nil); err != nil {
				return err
			}
			m, err := bucketValue(ctx, first.NC, Header{Prefix: wire.DefaultPrefix, Shards: 1}, checkpointKey(0))
			if err != nil {
				return err
			}
			if point, err := parseCheckpoint(m); err != nil || point.From.Seq < rejected+expired {
				return fmt.Errorf("%+v, %w", point, err)
			}
			return nil
		})
	}
	applies := func(context.Context) (bool, error) { return true, nil }
	if _, err := Take(t.Context(), Source{NATS: first.NC, Prefix: wire.DefaultPrefix, Applying: applies, Progress: wait},
		&file); err != nil {
		t.Fatal(err)
	}
	c, err := Scan(bytes.NewReader(file.Bytes()), Until{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	second := harness.NewClient(t, natstest.Start(t, natstest.Options{}), "")
	nobody := func(context.Context) (bool, error) { return false, nil }
	if err := c.Restore(t.Context(), Target{NATS: second.NC, Applying: nobody}, bytes.NewReader(file.Bytes()),
		Until{}); err != nil {
		t.Fatal(err)
	}
	var reads sync.Map
	if _, err := second.NC.Subscribe("$JS.API.DIRECT.GET.LAPSE_EVENTS", func(m *nats.Msg) {
		var request struct {
			Seq   uint64
			Batch int // 0: a question of the test
		}
		if json.Unmarshal(m.Data, &request) == nil && request.Batch > 0 {
			reads.Store(request.Seq, true)
		}
	}); err != nil {
		t.Fatal(err)
	}
	restored := harness.StartProcessor(t, second.NC.ConnectedUrl(),
		harness.StartRedis(t, harness.RedisOptions{}).Address(), processor.Options{})
	more := second.Want(201, wire.Upsert, "c", "more", `{"ttl":1}`)
	second.ExpiryOf("c", "more", more.Etag, harness.Limit)
	if err := restored.Stop(); err != nil {
		t.Fatal(err)
	}
	n := 0
	reads.Range(func(seq, _ any) bool {
		n++
		if seq.(uint64) < rejected {
			t.Errorf("it reads the stream of events from %d on", seq)
		}
		return true
	})
	if n == 0 || !waited {
		t.Error("it has not read the stream of events: the test shows nothing")
	}
	published := make(map[string]int)
	for _, e := range second.Events() {
		if id := e.Header.Get("ce-id"); id != "" {
			published[id]++
		}
	}
	for id, n := range published {
		if n > 1 {
			t.Errorf("%s was published %d times", id, n)
		}
	}
	if len(published) != expired+2 {
		t.Errorf("%d events, want %d", len(published), expired+2)
	}
}

// TestRestoreNames: restores of one backup to different ends have different names, so none takes the streams of another
// for its own. The same restore has the same name again.
func TestRestoreNames(t *testing.T) {
	c := &Contents{end: end{SHA256: strings.Repeat("a", 64)}}
	at := time.UnixMilli(1500)
	all := []Until{{}, {Seq: 7}, {Seq: 8}, {Time: at}, {Time: at.Add(1)}, {Seq: 7, Time: at}}
	names := make(map[string]bool)
	for _, until := range all {
		names[c.id(until)] = true
	}
	if len(names) != len(all) || c.id(Until{Time: at}) != c.id(Until{Time: at.UTC()}) {
		t.Errorf("the names are %v", names)
	}
}

// TestCompleteWithoutAStream: a backup may lack a stream that lapse can do without. The others are completed all the same.
func TestCompleteWithoutAStream(t *testing.T) {
	js := natstest.JetStream(t, (&faults{after: -1}).connect(t, natstest.Start(t, natstest.Options{})))
	c := &Contents{Header: Header{Prefix: "lapse", Shards: 1}}
	r := &restorer{js: js, contents: c, id: "id", last: make(map[string]jetstream.StreamConfig)}
	for _, name := range []string{c.Prefix.EventsStream(), c.root()} {
		first, last := c.configured(&streamContents{Name: name}, jetstream.StreamConfig{Name: name}, 0, "id")
		natstest.CreateStream(t, js, first)
		if r.last[name] = last; name == c.root() {
			r.root = first
		}
	}
	if err := r.complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name := range r.last {
		if stream, err := js.Stream(t.Context(), name); err != nil ||
			stream.CachedInfo().Config.Metadata[wire.FormatKey] == wire.Restoring {
			t.Errorf("stream %s has the mark of a restore: %v", name, err)
		}
	}
}

// TestG7_ACommittedRestoreStays: a restore finds what another one has left, and that one goes on and commits before its
// root is removed. The root stays, so that the other one can complete its streams.
//
// It fails if the root is removed: then the streams that are complete by then lack it, and no restore goes on with them.
func TestG7_ACommittedRestoreStays(t *testing.T) {
	js := natstest.JetStream(t, (&faults{after: -1}).connect(t, natstest.Start(t, natstest.Options{})))
	c := &Contents{Header: Header{Prefix: "lapse", Shards: 1}}
	first, _ := c.configured(&streamContents{Name: c.root()}, jetstream.StreamConfig{Name: c.root()}, 0, "other")
	natstest.CreateStream(t, js, first)
	other := &restorer{js: js, contents: c, id: "other", root: first}
	if err := other.complete(t.Context()); err != nil { // all of no stream: it commits alone
		t.Fatal(err)
	}
	r := &restorer{js: js, contents: c, id: "id"}
	if err := r.removeMarked(t.Context(), c.root()); err == nil || !strings.Contains(err.Error(), "another restore") {
		t.Errorf("it is removed: %v", err)
	}
	if _, err := js.Stream(t.Context(), c.root()); err != nil {
		t.Error(err)
	}
}
