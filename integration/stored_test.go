package integration

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

var storeNow = flag.Bool("store", false, "make testdata/stored-v3 anew, by this version")

// TestG7_StoredByAnEarlierVersion: what the first version of format 3 has stored can be read by this version: it is in
// a backup, which is restored. A change of the format makes another directory, and this one goes: lapse reads one
// format.
//
// It fails if this version reads the streams, the checkpoints, the documents in the log, the
// snapshots or the backup itself otherwise than the version that has written them.
func TestG7_StoredByAnEarlierVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "stored-v3")
	backup, expected := filepath.Join(dir, "backup"), filepath.Join(dir, "expected.txt")
	if *storeNow {
		storeAnew(t, backup)
	}
	w := restored(t, backup, 1)
	if log := w.Log(); len(log) == 0 || log[0].Seq == 1 {
		t.Error("the log is not truncated: so no snapshot is read")
	}
	got := strings.Join(w.everything(), "\n") + "\n"
	if *storeNow {
		if err := os.WriteFile(expected, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(expected)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("it reads as (-want +got):\n%s", diff)
	}
}

// storedConfigs are the configurations that are stored.
var storedConfigs = map[string]string{
	"never": `{"defaultTtl":-1}`, "years": `{"defaultTtl":2000000000}`, "soon": `{"defaultTtl":40}`,
	"off": `{}`, "lazy": `{"indexingMode":"lazy"}`, "none": `{"indexingMode":"none"}`,
}

// storeAnew makes a backup of some of everything: in snapshots, and in the log since.
func storeAnew(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	w := embedded(t)
	for collection, config := range storedConfigs {
		w.Configure(collection, config)
		w.Want(201, wire.Upsert, collection, "plain", `{"n":1.50,"text":"é ✓"}`)
		w.Want(201, wire.Upsert, collection, "own", `{"ttl":1500000000,"id":"own"}`)
		w.Want(201, wire.Upsert, collection, "a.b c%", `{"ttl":-1}`)
		w.Want(409, wire.Create, collection, "plain", `{}`)
	}
	w.truncate(func() {
		w.Configure("soon", `{"defaultTtl":41}`)
		w.Want(200, wire.Patch, "never", "plain", `{"n":null,"more":[1,2]}`)
	})
	w.Want(200, wire.Touch, "years", "plain", "")
	w.Want(204, wire.Delete, "off", "own", "")
	gone := w.Want(201, wire.Upsert, "never", "gone", `{"ttl":1}`)
	w.Want(201, wire.Upsert, "dropped", "x", `{}`)
	w.Drop("dropped")
	w.ExpiryOf("never", "gone", gone.Etag, harness.Limit)
	run(t, "backup", name, "--force", "--server", w.NC.ConnectedUrl())
	if slices.ContainsFunc(w.Events(), func(m oracle.Message) bool {
		return strings.HasPrefix(m.Header.Get("ce-id"),
			"soon/")
	}) {
		t.Fatal("a document has expired before the backup: run it again")
	}
}

// everything is the documents and the configurations, and the events that were published since the
// restore.
func (w *world) everything() (lines []string) {
	w.t.Helper()
	log, err := w.JS.Stream(w.t.Context(), w.Prefix.EventsStream())
	if err != nil {
		w.t.Fatal(err)
	}
	harness.Until(w.t, harness.Limit, "the document that is due has its event", func(ctx context.Context) error {
		_, err := log.GetLastMsgForSubject(ctx, w.Prefix.Stored(w.Prefix.Expired("soon", "plain")))
		return err
	})
	for collection := range storedConfigs {
		config, err := w.reader.Config(w.t.Context(), collection)
		if err != nil {
			w.t.Fatal(err)
		}
		text, err := json.Marshal(config)
		if err != nil {
			w.t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s: %s", collection, text))
		page, err := w.reader.List(w.t.Context(), collection, sink.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, d := range page.Documents {
			expires := "never"
			if d.ExpiresAt != nil {
				expires = d.ExpiresAt.String()
			}
			lines = append(lines, fmt.Sprintf("%s/%s etag=%s ts=%s expires=%s %s", collection, d.ID, d.Etag, d.Ts,
				expires, d.Body))
		}
	}
	slices.Sort(lines)
	var events []string
	for _, m := range w.Events() {
		if m.At > w.restoredAt {
			events = append(events, fmt.Sprintf("event %s %s %s %s", m.Published(), m.Header.Get("ce-source"),
				m.Header.Get("ce-id"), m.Data))
		}
	}
	slices.Sort(events)
	return append(lines, events...)
}

// TestG11_AnUnknownFormatIsNamed: what another version has stored beside the streams is refused by name, with how to go
// on.
func TestG11_AnUnknownFormatIsNamed(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	w.Want(201, wire.Upsert, "c", "1", `{}`)
	for bucket, key := range map[string]string{w.Prefix.CheckpointBucket(): "shard.0",
		w.Prefix.MembersBucket(): wire.LeaseKey(0)} {
		kv, err := w.JS.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		harness.Until(t, harness.Limit, key+" is stored", func(ctx context.Context) error {
			_, err := kv.Get(ctx, key)
			return err
		})
		w.lapse.Terminate()
		entry, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		other := strings.Replace(string(entry.Value()), `"format":3`, `"format":1`, 1)
		if other == string(entry.Value()) {
			t.Fatalf("%s has no format: %s", key, other)
		}
		if _, err := kv.Put(t.Context(), key, []byte(other)); err != nil {
			t.Fatal(err)
		}
		w.lapse.Launch()
		harness.Until(t, harness.Limit, "lapse names the format of "+key, func(ctx context.Context) error {
			err := w.lapse.ReadyNow(ctx)
			if err == nil {
				t.Fatalf("lapse is ready, although %s has another format", key)
			}
			if !strings.Contains(err.Error(),
				`has the format "1", and this version of lapse reads 3 alone: bring the documents over with lapse export`) {
				return err
			}
			return nil
		})
		if _, err := kv.Put(t.Context(), key, entry.Value()); err != nil {
			t.Fatal(err)
		}
		w.lapse.Ready()
	}
	w.verify()
}
