package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRandomQueries: random queries are asked after each part of a random history: documents that come, change, expire
// and go, and configurations whose indexes change. The same history runs on redis-server and on the embedded Redis, in
// one shard and in four. A plain model answers each query by reading all documents; what lapse returns over all pages
// must be that. Then queries are asked while documents and indexes change: each document that nobody changed must come
// exactly once, and another one as it was at some time. LAPSE_QUERIES is the number of queries in all (4000 if it is
// not set), LAPSE_SEED the seed (a random one).
//
// It fails if an entry is missing or left over after a write, an expiry or a change of the indexes; if a page ends
// between two entries and the next one begins elsewhere; if a condition holds for a document by its entry, and not by
// its body; if shards are merged in another order than they are read.
func TestRandomQueries(t *testing.T) {
	t.Parallel()
	n := number(t, "LAPSE_QUERIES", 4000)
	seed := number(t, "LAPSE_SEED", 1+rand.IntN(1<<30))
	t.Logf("LAPSE_SEED=%d", seed)
	for _, c := range []struct {
		name   string
		start  func(testing.TB) *redis.Client
		shards int
	}{
		{"redis", startRedis, 1},
		{"redis-4", startRedis, 4},
		{"embedded", startEmbeddedRedis, 1},
		{"embedded-4", startEmbeddedRedis, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newAsker(t, c.start(t), c.shards, uint64(seed))
			for round := 0; a.queries < n/4; round++ {
				a.round(round)
			}
			t.Logf("%d queries in %d pages with %d documents; %d pages were empty, %d queries were refused, %d waited "+
				"for an index, %d came while documents changed",
				a.queries, a.pages, a.returned, a.empty, a.refused, a.waited, a.moving)
			if n >= 4000 && (a.refused == 0 || a.moving == 0 || a.returned == 0) {
				t.Error("the queries are not of every kind")
			}
		})
	}
}

func startRedis(t testing.TB) *redis.Client         { return redistest.Start(t).Client }
func startEmbeddedRedis(t testing.TB) *redis.Client { return redistest.StartMini(t).Client }

// queryCollections are the collections of the histories. The last one has many documents.
var queryCollections = []string{"c0", "c1", "c2", "many"}

// manyDocuments is how many documents the last collection has at first: more than a page examines.
const manyDocuments = 2500

// marker is the collection of the documents that are written to learn what is applied.
const marker = "marker"

// asker asks random queries of one installation.
type asker struct {
	t       *testing.T
	client  *harness.Client
	reader  *sink.Reader
	logs    *oracle.Logs
	shards  int
	seed    uint64
	markers []string // an id in each shard
	configs map[string]queryConfig

	queries, pages, empty, refused, waited, moving, returned int
}

// newAsker starts a nats-server, and a processor for each shard.
func newAsker(t *testing.T, store *redis.Client, shards int, seed uint64) *asker {
	t.Helper()
	server := harness.NATSOptions{Shards: shards}
	if shards > 1 {
		server.Config = "feature_flags { js_ack_fc_v2: true }\n"
	}
	n := harness.StartNATS(t, server)
	a := &asker{
		t: t, client: harness.NewClient(t, n.URL(), ""), shards: shards, seed: seed, configs: map[string]queryConfig{},
	}
	window, events := duplicateWindow, int64(64<<20)
	for shard := range shards {
		log := &synced{}
		proc, err := processor.New(harness.Connect(t, n.URL()), store, processor.Options{
			Shards: shards, Shard: shard, OpenCollections: true, DuplicateWindow: &window, EventsMaxBytes: &events,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- proc.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil || strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("the processor of shard %d: %v\n%s", shard, err, log)
			}
		})
		harness.Until(t, harness.Limit, "the processor is ready", func(context.Context) error { return proc.Ready() })
	}
	var err error
	if a.reader, err = sink.NewReader(store, sink.ReaderOptions{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	a.logs = oracle.NewLogs(a.client.JS, oracle.Settings{Shards: shards})
	for shard := range shards {
		id := 0
		for wire.ShardOf(shards, marker, fmt.Sprint(id)) != shard {
			id++
		}
		a.markers = append(a.markers, fmt.Sprint(id))
	}
	return a
}

// round changes a collection, and asks queries about it.
func (a *asker) round(round int) {
	a.t.Helper()
	r := rand.New(rand.NewPCG(a.seed, uint64(round)))
	collection := queryCollections[r.IntN(len(queryCollections)-1)]
	writes, queries := 10+r.IntN(80), 60
	if round == 0 || chance(r, 10) {
		collection, queries = queryCollections[3], 30
	}
	if round == 0 {
		writes = manyDocuments
	}
	configures, later := chance(r, 30) || collection == queryCollections[3], chance(r, 40)
	if configures && !later || a.configs[collection].ttl == "" {
		a.configure(r, collection)
	}
	for i := range writes {
		ids := queryIDs
		if collection == queryCollections[3] {
			ids = []string{fmt.Sprint(i), fmt.Sprint(r.IntN(manyDocuments))}
		}
		a.send(randomWrite(r, a.client.Prefix, collection, ids))
	}
	if configures && later { // the indexes come when the documents are there
		a.client.Flush()
		a.configure(r, collection)
	}
	a.settle()
	at := now()
	all := map[string]*candidate{}
	for name, live := range a.logs.Live(at) {
		if name.Collection == collection {
			all[name.ID] = newCandidate(name.ID, live)
		}
	}
	for range queries {
		a.ask(r, round, collection, all)
	}
	if chance(r, 50) {
		a.askMoving(r, round, collection, all)
	}
}

// configure gives a collection a random configuration, and sometimes drops it before.
func (a *asker) configure(r *rand.Rand, collection string) {
	a.t.Helper()
	ttls := []string{"-1", "-1", "600", "60", "4", "null"}
	if collection == queryCollections[3] {
		ttls = ttls[:1] // so that its documents stay
	} else if chance(r, 10) && a.configs[collection].ttl != "" {
		before := a.logs.Configs(collection)
		a.client.Drop(collection)
		a.configured(collection, before)
	}
	a.configs[collection] = randomConfig(r, ttls)
	before := a.logs.Configs(collection)
	a.client.Configure(collection, a.configs[collection].String())
	a.configured(collection, before)
}

// configured waits until all logs have another configuration than before.
func (a *asker) configured(collection string, before []wire.Config) {
	a.t.Helper()
	harness.Until(a.t, harness.Limit, "all logs have the configuration", func(ctx context.Context) error {
		if err := a.logs.CatchUp(ctx); err != nil {
			return err
		}
		for i, config := range a.logs.Configs(collection) {
			if config.Etag == before[i].Etag {
				return fmt.Errorf("shard %d has version %s", i, config.Etag)
			}
		}
		return nil
	})
}

// send publishes a message, and does not wait.
func (a *asker) send(msg *nats.Msg) {
	if _, err := a.client.JS.PublishMsgAsync(msg); err != nil {
		a.t.Errorf("publish: %v", err)
	}
}

// settle waits until all that was sent is applied, and the model has it.
func (a *asker) settle() {
	a.t.Helper()
	a.client.Flush()
	for _, id := range a.markers {
		seq := a.client.Write(wire.Upsert, marker, id, "{}")
		harness.Until(a.t, harness.Limit, "the marker can be read", func(ctx context.Context) error {
			d, err := a.reader.Get(ctx, marker, id)
			if err == nil && d.Etag < wire.Etag(seq) {
				err = fmt.Errorf("it is version %s, want %d", d.Etag, seq)
			}
			return err
		})
	}
	harness.Until(a.t, harness.Limit, "the model has the logs", a.logs.CatchUp)
}

// ask asks a query, and compares the answer with the model.
func (a *asker) ask(r *rand.Rand, round int, collection string, all map[string]*candidate) {
	a.t.Helper()
	q := randomQuery(r, a.configs[collection].indexes)
	got, err := a.all(a.t.Context(), collection, q)
	a.queries++
	if served := q.served(a.configs[collection].indexes); !served && err != nil {
		a.refused++
		never := q.order == string(wire.ByID) && errors.Is(err, sink.ErrInvalidRequest) // no index would
		if !never && !errors.Is(err, sink.ErrNoIndex) {
			a.fail(round, collection, q, fmt.Errorf("no index serves it: %w", err))
		}
		return
	} else if !served {
		err = errors.New("no index serves it, and it is answered")
	}
	if err == nil {
		err = a.judge(q, got, all, nil)
	}
	if err != nil {
		a.fail(round, collection, q, err)
	}
}

func (a *asker) judge(q query, got reply, all map[string]*candidate, changed map[string][]*candidate) error {
	p, err := newPlain(q)
	if err != nil {
		return err
	}
	a.returned += len(got.documents)
	return p.judge(got, all, changed)
}

func (a *asker) fail(round int, collection string, q query, err error) {
	a.t.Helper()
	a.t.Fatalf("LAPSE_SEED=%d, round %d: a query of %s with the configuration %s\n%s: %v",
		a.seed, round, collection, a.configs[collection], q, err)
}

// all asks for all pages of a query. It waits until the index is made.
func (a *asker) all(ctx context.Context, collection string, q query) (got reply, err error) {
	opts, err := q.options()
	if err != nil {
		return got, err
	}
	got.from = now()
	for limit := time.Now().Add(harness.Limit); ; {
		page, err := a.reader.Query(ctx, collection, opts)
		if errors.Is(err, sink.ErrIndexMade) && time.Now().Before(limit) {
			a.waited++
			continue
		}
		if err != nil {
			return got, err
		}
		a.pages++
		if len(page.Documents) == 0 && page.Continuation != "" && !q.count {
			a.empty++
		}
		if err := q.checkPage(page); err != nil {
			return got, err
		}
		got.documents = append(got.documents, page.Documents...)
		if q.count {
			got.count += *page.Count
		}
		if got.upTo = now(); page.Continuation == "" {
			return got, nil
		}
		if q.bare {
			opts = sink.QueryOptions{Limit: q.limit, MaxBytes: q.maxBytes}
		}
		opts.Continuation = page.Continuation
	}
}

// mostExamined is the most that a page examines.
const mostExamined = 1000

// checkPage returns an error if a page is larger than it may be.
func (q query) checkPage(page sink.QueryPage) error {
	limit := q.limit
	if limit == 0 {
		limit = wire.DefaultListLimit
	}
	if page.Examined > mostExamined {
		return fmt.Errorf("a page has examined %d entries", page.Examined)
	}
	if len(page.Documents) > limit || q.count == (page.Count == nil) || q.count && len(page.Documents) > 0 {
		return fmt.Errorf("a page has %d documents and the count %v", len(page.Documents), page.Count)
	}
	return nil
}

// askMoving asks queries while some documents change, and sometimes the indexes.
func (a *asker) askMoving(r *rand.Rand, round int, collection string, all map[string]*candidate) {
	a.t.Helper()
	still, changed := map[string]*candidate{}, map[string][]*candidate{}
	for id, c := range all {
		still[id] = c
	}
	var ids []string
	for range 12 {
		id := pick(r, queryIDs)
		ids = append(ids, id)
		delete(still, id)
		if c := all[id]; c != nil && changed[id] == nil {
			changed[id] = []*candidate{c}
		}
	}
	var messages []*nats.Msg
	for range 300 {
		id := pick(r, ids)
		msg := &nats.Msg{Subject: a.client.Prefix.Write(wire.Delete, collection, id)}
		if !chance(r, 15) {
			msg.Subject, msg.Data = a.client.Prefix.Write(wire.Upsert, collection, id), []byte(randomBody(r))
			changed[id] = append(changed[id], newCandidate(id, oracle.Live{Document: oracle.Document{Body: msg.Data}}))
		}
		messages = append(messages, msg)
	}
	before, next := a.logs.Configs(collection), a.configs[collection]
	var config *nats.Msg // changes the indexes, if there is one
	if chance(r, 40) {
		next = next.reindexed(r)
		config = &nats.Msg{Subject: a.client.Prefix.Config(collection), Data: []byte(next.String())}
		messages = slices.Insert(messages, r.IntN(60), config)
	}
	var done atomic.Bool
	ended := make(chan struct{})
	ctx := a.t.Context()
	go func() {
		defer close(ended)
		for _, msg := range messages {
			if done.Load() && msg != config {
				continue
			}
			if _, err := a.client.JS.PublishMsg(ctx, msg); err != nil {
				a.t.Errorf("publish: %v", err)
				return
			}
		}
	}()
	indexes := a.configs[collection].indexes
	for range 15 {
		q := randomQuery(r, indexes)
		if !q.served(indexes) {
			continue
		}
		got, err := a.all(ctx, collection, q)
		if err == nil {
			err = a.judge(q, got, still, changed)
		} else if config != nil && (errors.Is(err, sink.ErrInvalidRequest) || errors.Is(err, sink.ErrUnavailable)) {
			a.refused++
			continue
		}
		if err != nil {
			a.fail(round, collection, q, fmt.Errorf("while %q change: %w", slices.Sorted(maps.Keys(changed)), err))
		}
		a.queries, a.moving = a.queries+1, a.moving+1
	}
	done.Store(true)
	<-ended
	if config != nil {
		a.configured(collection, before)
		a.configs[collection] = next
	}
	a.settle()
}
