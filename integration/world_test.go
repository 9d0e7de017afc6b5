package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// world is an installation of lapse for one test.
type world struct {
	*harness.Client
	t      *testing.T
	nats   *harness.NATS      // nil if embedded
	redis  *harness.Redis     // nil if embedded
	lapse  *harness.Lapse     // nil if the processor runs inside the test
	proc   *harness.Processor // nil if lapse is a process
	opts   processor.Options
	shards int // 0 for one
	reader *sink.Reader

	before     [][]oracle.Message // what each log began with, if it may be truncated
	restoredAt wire.Time          // by the test's clock, if a backup was restored
}

// duplicateWindow is the shortest that nats-server accepts. So lapse itself must keep from
// publishing an event twice.
const duplicateWindow = 100 * time.Millisecond

// embedded starts lapse in its default form: one process with both servers inside.
func embedded(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, lapse: harness.EmbeddedLapse(t, "--duplicate-window", duplicateWindow.String())}
	w.connectEmbedded()
	return w
}

// external starts lapse as a process, and a nats-server and a redis-server for it.
func external(t *testing.T, redis harness.RedisOptions) *world {
	t.Helper()
	w := servers(t, redis)
	w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(), "--duplicate-window", duplicateWindow.String())
	return w
}

// inProcess starts a processor inside the test, and a nats-server and a redis-server for it.
func inProcess(t *testing.T) *world {
	t.Helper()
	w := servers(t, harness.RedisOptions{})
	w.startProcessor()
	return w
}

// servers starts an empty nats-server and an empty redis-server.
func servers(t *testing.T, redis harness.RedisOptions) *world {
	t.Helper()
	return serversOf(t, redis, 1)
}

// serversOf is servers for so many shards.
func serversOf(t *testing.T, redis harness.RedisOptions, shards int) *world {
	t.Helper()
	window, config := duplicateWindow, ""
	if shards > 1 { // acknowledgements with the second form of their subjects
		config = "feature_flags { js_ack_fc_v2: true }\n"
	}
	w := &world{
		t: t, nats: harness.StartNATS(t, harness.NATSOptions{Shards: shards, Config: config}),
		redis: harness.StartRedis(t, redis), shards: shards,
		opts: processor.Options{DuplicateWindow: &window},
	}
	w.connect(w.nats.URL(), w.redis.Address())
	return w
}

func (w *world) connect(url, redis string) {
	w.t.Helper()
	w.connectTo(url, harness.RedisClient(w.t, redis))
}

// connectEmbedded connects to the servers that lapse embeds.
func (w *world) connectEmbedded() {
	w.t.Helper()
	w.connectTo(w.lapse.NATSURL, w.lapse.RedisClient())
}

func (w *world) connectTo(url string, store *redis.Client) {
	w.t.Helper()
	w.Client = harness.NewClient(w.t, url, "")
	reader, err := sink.NewReader(store, sink.ReaderOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.reader = reader
}

// startProcessor starts the processor inside the test (again), and waits until it is ready.
func (w *world) startProcessor() {
	w.t.Helper()
	w.proc = harness.StartProcessor(w.t, w.nats.URL(), w.redis.Address(), w.opts)
}

// stopProcessor stops the processor.
func (w *world) stopProcessor() {
	w.t.Helper()
	if err := w.proc.Stop(); err != nil {
		w.t.Fatal(err)
	}
}

// verify compares events and reads with the oracle: reads by sink.Reader, and by the read
// service if a process serves it.
func (w *world) verify() oracle.Result {
	w.t.Helper()
	reads := []readers.Reads{readers.ByReader(w.reader)}
	if w.lapse != nil {
		reads = append(reads, readers.ByService(w.NC, w.Prefix))
	}
	return oracle.Verify(w.t, oracle.Options{NATS: w.NC, Reads: reads, Before: w.before,
		Settings: oracle.Settings{Shards: w.shards}})
}

// readable reports whether sink.Reader finds a document.
func (w *world) readable(collection, id string) bool {
	w.t.Helper()
	found := false
	harness.Until(w.t, harness.Limit, "the reader answers", func(ctx context.Context) error {
		_, err := w.reader.Get(ctx, collection, id)
		found = err == nil
		return ignore(err, sink.ErrNotFound)
	})
	return found
}

// settled waits until sink.Reader returns the version that a message of the log wrote.
func (w *world) settled(collection, id string, seq uint64) sink.Document {
	w.t.Helper()
	var d sink.Document
	harness.Until(w.t, harness.Limit, collection+"/"+id+" is written", func(ctx context.Context) error {
		var err error
		if d, err = w.reader.Get(ctx, collection, id); err == nil && d.Etag != wire.Etag(seq) {
			err = fmt.Errorf("version %s is there", d.Etag)
		}
		return err
	})
	return d
}

// stamp returns the stamp of a message of the log.
func (w *world) stamp(seq uint64) wire.Time {
	w.t.Helper()
	stream, err := w.JS.Stream(w.t.Context(), w.Prefix.LogStream())
	if err != nil {
		w.t.Fatal(err)
	}
	msg, err := stream.GetMsg(w.t.Context(), seq)
	if err != nil {
		w.t.Fatal(err)
	}
	return wire.Time(msg.Time.UnixMilli())
}

// after waits until an instant.
func after(t *testing.T, at wire.Time) {
	t.Helper()
	harness.At(t, time.UnixMilli(int64(at)))
}

func now() wire.Time { return wire.Time(time.Now().UnixMilli()) }
