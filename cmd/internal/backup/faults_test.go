package backup

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/wire"
)

// faults lets one request to JetStream go to somebody else, who refuses it.
type faults struct {
	mu    sync.Mutex
	after int // requests; none fails if negative
	hit   bool
}

func (f *faults) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &faultyConn{conn, f}, err
}

type faultyConn struct {
	net.Conn
	*faults
}

// Write counts the requests in what the client library sends. The other subject is as long.
func (c *faultyConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for from := 0; c.after >= 0; {
		i := bytes.Index(b[from:], []byte("PUB $JS."))
		if i < 0 {
			break
		}
		from += i + len("PUB $J")
		if c.after--; c.after < 0 {
			b = bytes.Clone(b)
			b[from] = 'X'
			c.hit = true
		}
	}
	return c.Conn.Write(b)
}

// fail lets the request after so many fail, and returns whether that has happened since.
func (f *faults) fail(after int) (hit func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after, f.hit = after, false
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.after = -1
		return f.hit
	}
}

// connect connects to a server with faults.
func (f *faults) connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(url, natstest.Patient, nats.SetCustomDialer(f),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); <-closed })
	if _, err := nc.Subscribe("$JX.>", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"error":{"code":500,"err_code":10000,"description":"a fault"}}`))
	}); err != nil {
		t.Fatal(err)
	}
	return nc
}

// server is a NATS server with streams as lapse makes them.
func server(t *testing.T, shards int) (url string, js jetstream.JetStream) {
	t.Helper()
	url = natstest.Start(t, natstest.Options{})
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js = natstest.JetStream(t, nc)
	metadata := map[string]string{wire.FormatKey: wire.FormatText, wire.ShardsKey: fmt.Sprint(shards),
		"_nats.x": "the server's"}
	n := Header{Prefix: "lapse", Shards: shards}
	create := func(name string, subjects ...string) {
		natstest.CreateStream(t, js, jetstream.StreamConfig{Name: name, Subjects: subjects, Metadata: metadata,
			MaxAge: time.Hour, AllowDirect: true, DenyDelete: slices.Contains(append(n.logs(), n.root()), name)})
	}
	for i, name := range n.logs() {
		create(name, fmt.Sprintf("lapse.write%d.>", i))
	}
	if shards > 1 {
		create(n.root(), "lapse.config.>")
	} else if stream, err := js.Stream(t.Context(), n.root()); err != nil {
		t.Fatal(err)
	} else {
		c := stream.CachedInfo().Config
		c.Subjects = append(c.Subjects, "lapse.config.>")
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	create(n.Prefix.EventsStream(), "lapse.expired.>")
	create(n.Prefix.CheckpointStream(), "$KV.LAPSE_CHECKPOINTS.>")
	create(n.Prefix.SnapshotStream(), "$O.LAPSE_SNAPSHOTS.>")
	publish := func(subject, body string) {
		if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for i := range shards {
			publish(fmt.Sprintf("lapse.write%d.upsert.c.a", i), `{}`)
		}
	}
	publish("lapse.config.c", `{}`)
	for p := range shards {
		publish(fmt.Sprintf("$KV.LAPSE_CHECKPOINTS.shard.%d", p), `{"format":3,"seq":9,"watermark":1}`)
		publish(fmt.Sprintf("$KV.LAPSE_CHECKPOINTS.snapshot.%d", p), `{"format":3,"generations":[]}`)
	}
	if _, err := js.CreateConsumer(t.Context(), n.Prefix.EventsStream(),
		jetstream.ConsumerConfig{Durable: "named"}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), n.Prefix.EventsStream(),
		jetstream.ConsumerConfig{InactiveThreshold: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return url, js
}

func nobody(context.Context) (bool, error) { return false, nil }

// TestG7_EachRefusalEndsABackup lets JetStream refuse each request once, one after the other: a backup fails with what
// the server says, or is whole. A restore removes what it has made, or is completed by the same command.
//
// It fails if an answer is not looked at.
func TestG7_EachRefusalEndsABackup(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			url, _ := server(t, shards)
			f := &faults{after: -1}
			nc := f.connect(t, url)
			var whole []byte
			refused := 0
			for k := 0; whole == nil; k++ {
				hit := f.fail(k)
				var out bytes.Buffer
				_, err := Take(t.Context(), Source{NATS: nc, Prefix: "lapse", Applying: nobody}, &out)
				if was := hit(); was != (err != nil) || was && !strings.Contains(err.Error(), "a fault") {
					t.Fatalf("request %d was refused: %t, and the backup ends with %v", k, was, err)
				} else if !was {
					whole = out.Bytes()
				}
				refused = k
			}
			into, js := natstest.Start(t, natstest.Options{}), jetstream.JetStream(nil)
			f = &faults{after: -1}
			nc = f.connect(t, into)
			js = natstest.JetStream(t, nc)
			restores := 0
			for k := 0; ; k++ {
				var was bool
				err := restored(t, func() error {
					hit := f.fail(k)
					err := restore(t, nc, whole)
					was = hit()
					return err
				})
				if was != (err != nil) || was && !strings.Contains(err.Error(), "a fault") {
					t.Fatalf("request %d was refused: %t, and the restore ends with %v", k, was, err)
				}
				if !was {
					restores = k
					break
				}
				if !strings.Contains(err.Error(), "run the same command again") {
					continue // it has removed what it has made, or the next one does
				}
				if err := restored(t, func() error { return restore(t, nc, whole) }); err != nil {
					t.Fatalf("the same command after request %d: %v", k, err)
				}
				compare(t, url, js, shards)
				for _, name := range streamsOf(t, js) {
					if err := js.DeleteStream(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Logf("%d requests of a backup were refused, and %d of a restore", refused, restores)
			compare(t, url, js, shards)
		})
	}
}

// restored restores. The server keeps the name of a stream for some seconds if its upload has stopped.
func restored(t *testing.T, restore func() error) (err error) {
	t.Helper()
	if late := poll.Met(time.Minute, "the server gives the former upload up", func() bool {
		err = restore()
		return err == nil || !strings.Contains(err.Error(), "already in use, cannot restore")
	}); late != nil {
		t.Fatal(late)
	}
	return err
}

func restore(t *testing.T, nc *nats.Conn, backup []byte) error {
	t.Helper()
	c, err := Scan(bytes.NewReader(backup), Until{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Restore(t.Context(), Target{NATS: nc, Applying: nobody}, bytes.NewReader(backup), Until{})
}

func streamsOf(t *testing.T, js jetstream.JetStream) (all []string) {
	t.Helper()
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		all = append(all, name)
	}
	if names.Err() != nil {
		t.Fatal(names.Err())
	}
	return all
}

// compare compares the streams of a server with those that were restored of it.
func compare(t *testing.T, url string, restored jetstream.JetStream, shards int) {
	t.Helper()
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := natstest.JetStream(t, nc)
	n := Header{Prefix: "lapse", Shards: shards}
	for _, name := range n.streams() {
		var configs []jetstream.StreamConfig
		for _, at := range []jetstream.JetStream{js, restored} {
			stream, err := at.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(name, err)
			}
			c := stream.CachedInfo().Config
			c.Metadata = nil
			if at == js && (strings.HasPrefix(name, "LAPSE_LOG") || name == n.root()) {
				c.MaxAge, c.Duplicates = 0, stream.CachedInfo().Config.Duplicates
			}
			configs = append(configs, c)
			want := 0
			if name == n.Prefix.EventsStream() {
				want = 1
				if at == js {
					want = 2
				}
			}
			if consumers := stream.CachedInfo().State.Consumers; consumers != want {
				t.Errorf("stream %s has %d consumers, want %d", name, consumers, want)
			}
		}
		if diff := cmp.Diff(configs[0], configs[1]); diff != "" {
			t.Errorf("stream %s is another one:\n%s", name, diff)
		}
		from, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		to, _ := restored.Stream(t.Context(), name)
		for seq := from.CachedInfo().State.FirstSeq; seq > 0 && seq <= from.CachedInfo().State.LastSeq; seq++ {
			a, err := from.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			b, err := to.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			if name == n.Prefix.CheckpointStream() {
				a.Data, b.Data = nil, nil
			}
			if diff := cmp.Diff(a, b); diff != "" {
				t.Errorf("message %d of %s:\n%s", seq, name, diff)
			}
		}
	}
}
