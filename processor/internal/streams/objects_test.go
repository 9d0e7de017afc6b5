package streams

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
)

// TestObjects: objects are read as they were stored, also by nats.go; a part of one is no object, but
// has a name; and nothing is left of what was removed.
func TestObjects(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	s, err := Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	ctx, b := t.Context(), s.Snapshots
	large := bytes.Repeat([]byte("0123456789"), 100_000)
	for name, data := range map[string][]byte{"1.2.0": large, "1.2.manifest": []byte("m"), "1.20.0": []byte("other")} {
		if err := b.Put(ctx, name, []byte("before")); err != nil {
			t.Fatal(err)
		}
		if err := b.Put(ctx, name, data); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Get(ctx, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		plain, err := js.ObjectStore(ctx, "LAPSE_SNAPSHOTS")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := plain.GetBytes(ctx, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("by nats.go %s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := js.Publish(ctx, b.pieces("1.2.5"), []byte("a part")); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(ctx, "1.2.5"); got != nil || err != nil {
		t.Errorf("of a part: %q, %v", got, err)
	}
	names, err := b.Names(ctx)
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"1.2.0", "1.2.5", "1.2.manifest", "1.20.0"}) {
		t.Errorf("names %v, %v", names, err)
	}
	if err := b.Remove(ctx, "1.2"); err != nil {
		t.Fatal(err)
	}
	if names, err := b.Names(ctx); err != nil || !slices.Equal(names, []string{"1.20.0"}) {
		t.Errorf("names %v, %v", names, err)
	}
	if info, err := b.stream.Info(ctx); err != nil || info.State.Msgs != 2 {
		t.Errorf("%d messages are left, %v", info.State.Msgs, err)
	}
}

// TestFillingPushesBytesOut: what a stream has removed is gone from the files of the server, once a
// filling and a few messages have followed it.
//
// It fails without the filling: the server keeps a file in which a message is left.
func TestFillingPushesBytesOut(t *testing.T) {
	dir := t.TempDir()
	js := natstest.Connect(t, natstest.Options{Store: dir})
	o := options()
	age := 2 * time.Second
	o.EventsMaxAge = &age
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	publish := func(subject, text string) uint64 {
		t.Helper()
		ack, err := js.Publish(ctx, subject, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	publish("lapse.write.upsert.c.x", "secret of the log")
	publish("lapse.expired.c.x", "secret of the events")
	if err := s.Snapshots.Put(ctx, "0.1.0", []byte("secret of the objects")); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret of the log", "secret of the events", "secret of the objects"} {
		if files := holding(t, dir, secret); len(files) == 0 {
			t.Errorf("%q is in no file", secret)
		}
	}
	last, err := s.LogFilling(o.log()).Fill(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Filling{s.EventsFilling(o.Prefix, false), s.ObjectsFilling()} {
		if _, err := f.Fill(ctx, js); err != nil {
			t.Fatal(err)
		}
	}
	kept := publish("lapse.write.upsert.c.y", "kept")
	publish("lapse.expired.c.y", "kept")
	if err := s.Snapshots.Put(ctx, "0.2.0", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := s.Log.Purge(ctx, jetstream.WithPurgeSequence(last)); err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshots.Remove(ctx, "0.1"); err != nil {
		t.Fatal(err)
	}
	if kept <= last {
		t.Errorf("the filling ended at %d, and %d came after it", last, kept)
	}
	for _, secret := range []string{"secret of the log", "secret of the events", "secret of the objects"} {
		err := poll.Until(ctx, time.Minute, func(context.Context) error {
			if files := holding(t, dir, secret); len(files) > 0 {
				return fmt.Errorf("%q is in %v", secret, files)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// holding are the files under a directory that hold a text.
func holding(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it may be removed meanwhile
		}
		content, _ := os.ReadFile(filepath.Join(dir, path))
		if bytes.Contains(content, []byte(text)) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestAFormerFillingGoes: a message of a filling of the snapshots was stored, and the server was killed before it was
// removed. The next filling removes it: the keeper takes for gone what was stored before the first message that is left.
func TestAFormerFillingGoes(t *testing.T) {
	t.Parallel()
	js := natstest.Connect(t, natstest.Options{})
	s, err := Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	f := s.ObjectsFilling()
	if _, err := js.Publish(t.Context(), f.subject, []byte("left")); err != nil {
		t.Fatal(err)
	}
	last, err := f.Fill(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshots.Put(t.Context(), "x", []byte("behind it")); err != nil {
		t.Fatal(err)
	}
	if info, err := f.stream.Info(t.Context()); err != nil || info.State.FirstSeq != last+1 {
		t.Errorf("the stream begins at %d, %v, behind a filling that ends at %d", info.State.FirstSeq, err, last)
	}
}

// TestFillingsThatFail: a stream that cannot be filled is told: else what it has removed would count as gone from its
// files.
func TestFillingsThatFail(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{}), options()
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	for stream, f := range map[string]Filling{o.Root(): s.LogFilling(o.log()),
		o.Prefix.EventsStream(): s.EventsFilling(o.Prefix, false), o.Prefix.SnapshotStream(): s.ObjectsFilling()} {
		if err := js.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
		if last, err := f.Fill(t.Context(), js); err == nil || last != 0 {
			t.Errorf("stream %s is gone, and a filling ends at %d: %v", stream, last, err)
		}
	}
}
