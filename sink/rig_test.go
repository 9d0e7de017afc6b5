package sink_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ctx is for calls to a server that ends with the test.
var ctx = context.Background()

// far is a watermark that no server's clock reaches: it judges instead of the clock.
const far = 4_102_444_800_000 // 2100-01-01

// startRedis runs a redis-server of its own for a test, on a socket: so no two can
// want the same port. It ends with the test, however the test ends: the shell
// that started it reads from the test's pipe until that is closed.
func startRedis(t testing.TB, args ...string) *redis.Client {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is missing: apt-get install redis-server")
	}
	dir, err := os.MkdirTemp("", "redis") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	args = append([]string{"-c", `redis-server "$@" & read -r _; kill -9 $!; wait`, "sh",
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
	cmd := exec.Command("sh", args...)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close(); _ = cmd.Wait() })
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	eventually(t, func() bool { _, err := os.Stat(socket); return err == nil })
	eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil })
	return client
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit:
			t.Fatal("it did not come about within 20s")
		case <-tick.C:
		}
	}
}

// server is one of the two that the conformance suite runs on.
type server struct {
	client *redis.Client
	mini   *miniredis.Miniredis // nil on Redis
}

// onBoth runs a test on miniredis and on Redis: what has two servers behind it has
// one suite.
func onBoth(t *testing.T, test func(t *testing.T, s server)) {
	t.Run("miniredis", func(t *testing.T) {
		mini := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: mini.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		test(t, server{client, mini})
	})
	t.Run("redis", func(t *testing.T) { test(t, server{client: startRedis(t)}) })
}

// rig is a store with a plain model of what it is to hold.
type rig struct {
	server
	t       testingT
	prefix  wire.Prefix
	n       int
	store   *sink.Store
	reader  *sink.Reader
	state   []sink.Progress // of each partition: Version is the current one
	configs map[string]sink.Config
	docs    map[string]map[string]sink.Stored // by collection and id
}

// testingT is what a test and a rapid check have in common.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

var prefixes atomic.Int64

// newRig makes a rig on partitions of its own, all taken over, at a watermark.
func newRig(t testingT, s server, n int, watermark int64) *rig {
	t.Helper()
	r := &rig{server: s, t: t, n: n, prefix: wire.Prefix("t" + strconv.FormatInt(prefixes.Add(1), 10)),
		state: make([]sink.Progress, n), configs: map[string]sink.Config{}, docs: map[string]map[string]sink.Stored{}}
	r.store = sink.NewStore(s.client, r.prefix, n)
	r.reader = r.newReader()
	for p := range n {
		r.state[p] = sink.Progress{Version: "v0", Offset: 0, Watermark: watermark}
		if err := r.store.Partition(p).Take(ctx, sink.State{Log: "log", Watermark: watermark}, "v0", 0); err != nil {
			t.Fatalf("take: %v", err)
		}
	}
	return r
}

func (r *rig) newReader() *sink.Reader {
	reader, err := sink.NewReader(r.client, sink.ReaderOptions{Prefix: r.prefix, Partitions: r.n})
	if err != nil {
		r.t.Fatalf("new reader: %v", err)
	}
	return reader
}

// key is the name of one of a partition's keys.
func (r *rig) key(p int, kind string) string {
	r.t.Helper()
	keys, err := r.client.Keys(ctx, fmt.Sprintf("%s:{%d.*}:state", r.prefix, p)).Result()
	if err != nil || len(keys) != 1 {
		r.t.Fatalf("state of partition %d: %v, %v", p, keys, err)
	}
	return keys[0][:len(keys[0])-len("state")] + kind
}

// progress is the next step of a partition.
func (r *rig) progress(p int) sink.Progress {
	pr := r.state[p]
	pr.Offset++
	pr.Next = "v" + strconv.FormatUint(pr.Offset, 10)
	return pr
}

// commit commits one step to a partition, and to the model.
func (r *rig) commit(p int, configs []sink.ConfigChange, changes ...sink.CollectionChanges) {
	r.t.Helper()
	pr := r.progress(p)
	if err := r.store.Partition(p).Commit(ctx, pr, configs, changes); err != nil {
		r.t.Fatalf("commit: %v", err)
	}
	pr.Version = pr.Next
	r.state[p] = pr
	for _, c := range configs {
		if c.Config == nil {
			delete(r.configs, c.Collection)
		} else {
			r.configs[c.Collection] = *c.Config
		}
	}
	for _, c := range changes {
		docs := r.docs[c.Collection]
		if docs == nil {
			docs = map[string]sink.Stored{}
			r.docs[c.Collection] = docs
		}
		if c.Drop == sink.DropAll {
			maps.DeleteFunc(docs, func(id string, _ sink.Stored) bool { return wire.Partition(r.n, c.Collection, id) == p })
		}
		for _, ch := range c.Changes {
			switch {
			case ch.New == nil:
				delete(docs, ch.ID)
			case ch.Body == nil:
				docs[ch.ID] = sink.Stored{Header: *ch.New, Body: docs[ch.ID].Body}
			default:
				docs[ch.ID] = sink.Stored{Header: *ch.New, Body: string(ch.Body)}
			}
		}
	}
}

// configure gives a collection the same configuration in all partitions.
func (r *rig) configure(collection string, c *sink.Config) {
	r.t.Helper()
	for p := range r.n {
		r.commit(p, []sink.ConfigChange{{Collection: collection, Config: c}})
	}
}

// withDefault configures a default TTL.
func (r *rig) withDefault(collection string, at int64, d ttlrules.Default) {
	r.t.Helper()
	c := r.configs[collection]
	c.History = c.History.With(at, 1, d)
	r.configure(collection, &c)
}

// change is what makes a document be as given; body nil keeps it, h nil removes it.
func (r *rig) change(collection, id string, h *sink.Header, body []byte) sink.Change {
	ch := sink.Change{ID: id, New: h, Body: body}
	if old, ok := r.docs[collection][id]; ok {
		ch.Old = &old.Header
	}
	return ch
}

// write makes changes to a collection, one commit per partition.
func (r *rig) write(collection string, changes ...sink.Change) {
	r.t.Helper()
	by := make([][]sink.Change, r.n)
	for _, ch := range changes {
		p := wire.Partition(r.n, collection, ch.ID)
		by[p] = append(by[p], ch)
	}
	for p, some := range by {
		if len(some) > 0 {
			r.commit(p, nil, sink.CollectionChanges{Collection: collection, Changes: some, NoIndex: r.configs[collection].NoIndex})
		}
	}
}

// put writes one document.
func (r *rig) put(collection, id string, h sink.Header, body string) {
	r.t.Helper()
	r.write(collection, r.change(collection, id, &h, []byte(body)))
}

// putMany writes n documents that inherit, stamped ts.
func (r *rig) putMany(collection string, n int, ts int64) {
	r.t.Helper()
	changes := make([]sink.Change, n)
	for i := range changes {
		id := fmt.Sprintf("doc-%06d", i)
		changes[i] = r.change(collection, id, &sink.Header{Ts: ts, Etag: uint64(i + 1)}, []byte(`{"n":`+strconv.Itoa(i)+`}`))
	}
	r.write(collection, changes...)
}

// live is what the model has of a collection that is not expired at the watermark.
func (r *rig) live(collection string, now int64) map[string]sink.Stored {
	live := map[string]sink.Stored{}
	for id, d := range r.docs[collection] {
		if !r.configs[collection].History.Expired(d.Header.Ts, d.Header.TTL, now) {
			live[id] = d
		}
	}
	return live
}

// list reads all pages, and says how often each document was in one.
func (r *rig) list(collection string, opts sink.ListOptions) (times map[string]int, pages int) {
	r.t.Helper()
	times = map[string]int{}
	for {
		page, err := r.reader.List(ctx, collection, opts)
		if err != nil {
			r.t.Fatalf("list: %v", err)
		}
		pages++
		for _, d := range page.Documents {
			times[d.ID]++
		}
		if len(page.Documents) > opts.Limit {
			r.t.Errorf("a page has %d documents: the limit is %d", len(page.Documents), opts.Limit)
		}
		if page.Continuation == "" {
			return times, pages
		}
		opts.Continuation = page.Continuation
	}
}

// dump is everything that a server holds under the rig's prefix, to see that
// nothing was written.
func (r *rig) dump() map[string]string {
	r.t.Helper()
	keys, err := r.client.Keys(ctx, string(r.prefix)+":*").Result()
	if err != nil {
		r.t.Fatalf("keys: %v", err)
	}
	slices.Sort(keys)
	dump := map[string]string{}
	for _, k := range keys {
		switch kind := r.client.Type(ctx, k).Val(); kind {
		case "hash":
			dump[k] = fmt.Sprint(r.client.HGetAll(ctx, k).Val())
		case "zset":
			dump[k] = fmt.Sprint(r.client.ZRangeWithScores(ctx, k, 0, -1).Val())
		default:
			dump[k] = kind + fmt.Sprint(r.client.Get(ctx, k).Val())
		}
	}
	return dump
}

func wantErr(t testingT, err, want error, doing string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", doing, err, want)
	}
}

// silence stops a redis-server without ending it: it accepts, and answers nothing.
func silence(t *testing.T, client *redis.Client) {
	t.Helper()
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
