package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// forgetful are flags with which lapse forgets soon.
var forgetful = []string{"--duplicate-window", duplicateWindow.String(), "--forget-within", "15s"}

// TestG10_NothingIsLeftInAnyFile: documents expire, are deleted, overwritten, patched, dropped and rejected. After a
// while their bytes are in no file of the NATS server, of Redis and of lapse. Those of a document that lives are still
// there, also after Redis has lost everything.
//
// It fails without snapshots, without the truncation, and without the fillings of any stream. A log with a
// maximum size has them too, and no sequence is missing from its middle.
func TestG10_NothingIsLeftInAnyFile(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		w := &world{t: t, lapse: harness.EmbeddedLapse(t, forgetful...)}
		w.connectEmbedded()
		w.leavesNothing(w.lapse.Dir())
		w.lapse.Kill()
		w.lapse.Start()
		w.keeps()
	})
	t.Run("external", func(t *testing.T) {
		t.Parallel()
		w := servers(t, harness.RedisOptions{Persistent: true})
		w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(), forgetful...)
		w.leavesNothing(w.nats.Dir(), w.redis.Dir(), w.lapse.Dir())
		if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		w.keeps()
	})
	t.Run("of a size", func(t *testing.T) {
		t.Parallel()
		w := servers(t, harness.RedisOptions{Persistent: true})
		w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(),
			append(forgetful, "--log-max-bytes", "64MiB")...)
		w.leavesNothing(w.nats.Dir(), w.redis.Dir(), w.lapse.Dir())
		if log := w.stateOf(w.Prefix.LogStream()); log.NumDeleted > 0 {
			t.Errorf("a message of the log was deleted: %+v", log)
		}
		w.lapse.Ready()
	})
}

// TestG10_Shards: the same with two shards. The logs source the stream of configurations: after the truncation, and a
// restart of the NATS server, it may copy what the logs had already. That changes nothing.
//
// It fails if an older configuration takes effect again.
func TestG10_Shards(t *testing.T) {
	t.Parallel()
	w := serversOf(t, harness.RedisOptions{Persistent: true}, 2)
	w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(), append(forgetful, "--shards", "2")...)
	w.Configure("other", `{"defaultTtl":1}`)
	w.Configure("other", `{"defaultTtl":-1}`)
	w.leavesNothing(w.nats.Dir(), w.redis.Dir(), w.lapse.Dir())
	w.nats.Kill()
	w.nats.Start()
	w.lapse.Ready()
	o := w.Want(201, wire.Upsert, "other", "x", `{"secret":"alive"}`)
	expired := w.Want(201, wire.Upsert, "other", "y", `{"ttl":2}`)
	w.ExpiryOf("other", "y", expired.Etag, harness.Limit) // so x would have expired by its first configuration
	if o.ExpiresAt != nil || !w.readable("other", "x") {
		t.Errorf("a document of a collection without a default expires: %+v", o)
	}
	if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.keeps()
}

// keeps waits until the document that lives can be read.
func (w *world) keeps() {
	w.t.Helper()
	harness.Until(w.t, harness.Limit, "the document that lives is there", func(context.Context) error {
		d, err := w.reader.Get(w.t.Context(), "c", "live")
		if err == nil && !strings.Contains(string(d.Body), "alive") {
			err = fmt.Errorf("it is %s", d.Body)
		}
		return err
	})
}

// leavesNothing lets documents die, and waits until their bytes are in no file under some directories.
func (w *world) leavesNothing(dirs ...string) {
	w.t.Helper()
	secrets := make(map[string]string)
	body := func(name, ttl string) string {
		var random [16]byte
		_, _ = rand.Read(random[:])
		secrets[name] = hex.EncodeToString(random[:])
		return fmt.Sprintf(`{%s"secret":%q}`, ttl, secrets[name])
	}
	w.Configure("c", `{"defaultTtl":-1}`)
	w.Want(201, wire.Upsert, "c", "live", `{"secret":"alive"}`)
	w.Want(201, wire.Upsert, "c", "overwritten", body("overwritten", ""))
	w.Want(200, wire.Upsert, "c", "overwritten", `{}`)
	w.Want(201, wire.Upsert, "c", "patched", body("patched", ""))
	w.Want(200, wire.Patch, "c", "patched", `{"secret":null}`)
	w.Want(409, wire.Create, "c", "live", body("rejected", ""))
	w.Want(201, wire.Upsert, "c", "deleted", body("deleted", ""))
	w.Want(201, wire.Upsert, "dropped", "x", body("dropped", ""))
	events, err := w.NC.SubscribeSync(w.Prefix.Expired("c", "expired")) // the stream may soon have forgotten it
	if err != nil {
		w.t.Fatal(err)
	}
	w.Want(201, wire.Upsert, "c", "expired", body("expired", `"ttl":1,`))
	for name := range secrets {
		harness.Until(w.t, harness.Limit, "the bytes are in a file: "+name, func(ctx context.Context) error {
			if files := filesWith(dirs, secrets[name]); len(files) > 0 || w.truncated(ctx) {
				return nil
			}
			return fmt.Errorf("they are not")
		})
	}
	w.Want(204, wire.Delete, "c", "deleted", "")
	w.Drop("dropped")
	if _, err := events.NextMsg(harness.Limit); err != nil {
		w.t.Fatalf("the event of c/expired: %v", err)
	}
	began := time.Now()
	for name, secret := range secrets {
		harness.Until(w.t, harness.Limit, "the bytes are in no file: "+name, func(context.Context) error {
			if files := filesWith(dirs, secret); len(files) > 0 {
				return fmt.Errorf("they are in %v", files)
			}
			return nil
		})
	}
	w.t.Logf("the last bytes were gone after %s", time.Since(began).Round(time.Second/10))
}

// truncated reports whether lapse has truncated a log. On a busy machine it may forget what was
// written while the test still writes.
func (w *world) truncated(ctx context.Context) bool {
	for name := range w.JS.StreamNames(ctx).Name() {
		if !strings.HasPrefix(name, w.Prefix.LogStream()) {
			continue
		}
		if log, err := w.JS.Stream(ctx, name); err == nil && log.CachedInfo().State.FirstSeq > 1 {
			return true
		}
	}
	return false
}

// filesWith are the files under some directories that contain a text.
func filesWith(dirs []string, text string) (found []string) {
	for _, dir := range dirs {
		_ = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // it may be removed meanwhile
			}
			content, _ := os.ReadFile(filepath.Join(dir, path))
			if bytes.Contains(content, []byte(text)) {
				found = append(found, filepath.Join(dir, path))
			}
			return nil
		})
	}
	return found
}
