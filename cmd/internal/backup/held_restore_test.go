//go:build held

package backup

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// copied is a backup of a server with streams as lapse makes them, and servers into which a test restores it.
type copied struct {
	shards int
	url    string // of the original
	file   []byte
	nc     *nats.Conn // where it is restored
	js     jetstream.JetStream
	left   *restorer // see interrupted
}

// newCopied takes a backup, and starts an empty server.
func newCopied(t *testing.T, shards int) *copied {
	t.Helper()
	c := &copied{shards: shards}
	c.url, _ = server(t, shards)
	c.file = backupOf(t, c.url)
	c.nc = connected(t, natstest.Start(t, natstest.Options{}))
	c.js = natstest.JetStream(t, c.nc)
	return c
}

// connected connects to a server until the test ends.
func connected(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// backupOf takes a backup of a server on which no process of lapse runs.
func backupOf(t *testing.T, url string) []byte {
	t.Helper()
	var file bytes.Buffer
	if _, err := Take(t.Context(), Source{NATS: connected(t, url), Prefix: "lapse", Applying: nobody}, &file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// restore restores the backup, until a message if it is not 0.
func (c *copied) restore(t *testing.T, until uint64) error {
	t.Helper()
	contents, err := Scan(bytes.NewReader(c.file), Until{Seq: until})
	if err != nil {
		t.Fatal(err)
	}
	return contents.Restore(t.Context(), Target{NATS: c.nc, Applying: nobody}, bytes.NewReader(c.file), Until{Seq: until})
}

// compare compares what is restored with the original.
func (c *copied) compare(t *testing.T) {
	t.Helper()
	compare(t, c.url, c.js, c.shards)
	if names := c.marked(t); len(names) > 0 {
		t.Errorf("%v have the mark of a restore", names)
	}
}

// marked lists the streams with the mark of a restore.
func (c *copied) marked(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range streamsOf(t, c.js) {
		stream, err := c.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if stream.CachedInfo().Config.Metadata[wire.FormatKey] == wire.Restoring {
			names = append(names, name)
		}
	}
	return names
}

// interrupted leaves a restore that was killed before it had committed.
func (c *copied) interrupted(t *testing.T) {
	t.Helper()
	contents, err := Scan(bytes.NewReader(c.file), Until{})
	if err != nil {
		t.Fatal(err)
	}
	r := &restorer{Target: Target{NATS: c.nc, Progress: func(string) {}}, js: c.js, contents: contents,
		id: contents.id(Until{}), last: make(map[string]jetstream.StreamConfig)}
	if err := r.transfer(t.Context(), bytes.NewReader(c.file), true); err != nil {
		t.Fatal(err)
	}
	c.left = r
}

// completes lets the restore that was interrupted go on, as one that stood still, and a client writes. It reports
// whether both went well.
func (c *copied) completes(t *testing.T) bool {
	t.Helper()
	if err := c.left.complete(t.Context()); err != nil {
		return false
	}
	_, err := c.js.Publish(t.Context(), "lapse.write0.upsert.c.new", []byte(`{}`))
	return err == nil
}

// hasNew reports whether the write of completed is there.
func (c *copied) hasNew(t *testing.T) bool {
	t.Helper()
	stream, err := c.js.Stream(t.Context(), (Header{Prefix: "lapse", Shards: c.shards}).logs()[0])
	if err != nil {
		return false
	}
	_, err = stream.GetLastMsgForSubject(t.Context(), "lapse.write0.upsert.c.new")
	return err == nil
}

// TestHeldRestoreIsTakenOver: somebody takes a restore for dead, and runs the same command again while it
// is between two of its calls. Each refuses or completes, and never removes what the other one has completed: once
// the last one has ended, everything is restored, or the same command restores it.
func TestHeldRestoreIsTakenOver(t *testing.T) {
	for _, operation := range []string{"Contents.Restore", "restorer.transfer", "upload"} {
		held.Each(t, "cmd/internal/backup."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			c := newCopied(t, 2)
			var other error
			during(func() { other = c.restore(t, 0) })
			err := c.restore(t, 0)
			if err != nil && (other != nil || len(c.marked(t)) > 0) {
				t.Logf("one: %v; the other: %v", err, other)
				err = restored(t, func() error { return c.restore(t, 0) })
				if err != nil && !strings.Contains(err.Error(), "exists: restore into servers without it") {
					t.Errorf("the same command: %v", err)
				}
			}
			c.compare(t)
		})
	}
}

// TestHeldPrepare: while a restore looks for what is there, lapse starts and makes its streams. The restore refuses,
// leaves them as they are, and leaves nothing of its own.
func TestHeldPrepare(t *testing.T) {
	held.Each(t, "cmd/internal/backup.restorer.prepare", held.Write, func(t *testing.T, during func(func())) {
		c := newCopied(t, 1)
		var made []string
		during(func() {
			made = []string{"LAPSE_LOG", "LAPSE_EVENTS", "KV_LAPSE_CHECKPOINTS"}
			for _, name := range made {
				natstest.CreateStream(t, c.js, jetstream.StreamConfig{Name: name, Subjects: []string{name},
					Metadata: map[string]string{wire.FormatKey: wire.FormatText}})
				if _, err := c.js.Publish(t.Context(), name, nil); err != nil {
					t.Fatal(err)
				}
			}
		})
		err := c.restore(t, 0)
		if made == nil {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if err == nil {
			t.Error("it does not refuse")
		}
		names := streamsOf(t, c.js)
		if slices.Sort(names); !slices.Equal(names, []string{"KV_LAPSE_CHECKPOINTS", "LAPSE_EVENTS", "LAPSE_LOG"}) {
			t.Errorf("there are %v", names)
		}
		for _, name := range made {
			if stream, err := c.js.Stream(t.Context(), name); err != nil || stream.CachedInfo().State.Msgs != 1 {
				t.Errorf("stream %s: %v", name, err)
			}
		}
	})
}

// TestHeldRemove: a restore stands still before it completes its streams. Another one removes them, because it restores
// another state. Between two calls of that the first one goes on: it completes its streams, and a client writes,
// and this write is never lost; or it cannot complete them. In the end one of the two states is there, or the same
// command restores it.
//
// It fails if a stream is removed that was complete by then.
func TestHeldRemove(t *testing.T) {
	for _, operation := range []string{"restorer.prepare", "restorer.removeMarked"} {
		held.Each(t, "cmd/internal/backup."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			c := newCopied(t, 1)
			c.interrupted(t)
			wrote := false
			during(func() { wrote = c.completes(t) })
			err := c.restore(t, 3)
			switch {
			case wrote && !c.hasNew(t):
				t.Errorf("the write of a client is lost (%v)", err)
			case wrote == (err == nil):
				t.Errorf("the first one is complete: %t; the second one: %v", wrote, err)
			}
			if names := c.marked(t); len(names) > 0 {
				t.Errorf("%v have the mark of a restore", names)
			}
			if wrote {
				c.compare(t)
			}
		})
	}
}

// TestHeldRemoveAll: a restore fails, and removes what it has made. Between two streams somebody runs the command again,
// which removes the rest and restores everything. That stays.
func TestHeldRemoveAll(t *testing.T) {
	held.Each(t, "cmd/internal/backup.restorer.removeAll", held.Takeover, func(t *testing.T, during func(func())) {
		c := newCopied(t, 2)
		c.interrupted(t)
		var other error
		happened := false
		during(func() { other, happened = restored(t, func() error { return c.restore(t, 0) }), true })
		removed := c.left.removeAll()
		if !happened {
			other = restored(t, func() error { return c.restore(t, 0) })
		}
		if removed != nil || other != nil {
			t.Errorf("%v; the other one: %v", removed, other)
		}
		c.compare(t)
	})
}

// TestHeldComplete: a restore completes its streams. Between two of them another one, of another state, wants to remove
// them, and refuses, because the first one has committed; or the same command is run again, and completes them.
// Then everything is there.
func TestHeldComplete(t *testing.T) {
	complete := func(operation string, until uint64) {
		held.Each(t, "cmd/internal/backup."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			c := newCopied(t, 1)
			c.interrupted(t)
			var other error
			happened := false
			during(func() { other, happened = c.restore(t, until), true })
			if err := c.left.complete(t.Context()); err != nil {
				t.Error(err)
			}
			if refuses := until > 0; happened && (other != nil) != refuses {
				t.Errorf("the other one: %v", other)
			}
			c.compare(t)
		})
	}
	complete("restorer.complete", 0)
	complete("restorer.complete", 4)
	complete("restorer.update", 0)
}
