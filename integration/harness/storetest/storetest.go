// Package storetest fills a store for tests, and keeps a plain model of its expected
// content. The tests of sink and of sink/store use it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Far is a watermark that no server's clock reaches. Documents are judged by it, not by the
// clock.
const Far = 4_102_444_800_000 // 2100-01-01

// ctx is for calls to a server that ends with the test.
var ctx = context.Background()

// Rig is a store and a reader on shards of their own, and a model of the documents.
type Rig struct {
	redistest.Server
	T      T
	Prefix wire.Prefix
	N      int // number of shards
	Shards []*store.Shard
	Reader *sink.Reader

	At      []store.Progress // of each shard, after its last commit
	Configs map[string]store.Config
	Docs    map[string]map[string]store.Stored // by collection and id
}

// T is what a test and a rapid check have in common.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

var prefixes atomic.Int64

// New makes a rig under a prefix of its own. It takes over n shards at a watermark.
func New(t T, s redistest.Server, n int, watermark int64) *Rig {
	t.Helper()
	r := &Rig{Server: s, T: t, N: n, Prefix: wire.Prefix("t" + strconv.FormatInt(prefixes.Add(1), 10)),
		At: make([]store.Progress, n), Configs: map[string]store.Config{}, Docs: map[string]map[string]store.Stored{}}
	r.Reader = r.NewReader()
	for p := range n {
		r.Shards = append(r.Shards, store.New(s.Client, r.Prefix, p, n))
		r.At[p] = store.Progress{Version: "v0", Offset: 0, Watermark: watermark}
		if err := r.Shards[p].Take(ctx, store.State{Log: "log", Watermark: watermark}, "v0", 0); err != nil {
			t.Fatalf("take: %v", err)
		}
	}
	return r
}

// Open lets reads find collections that are not configured.
func (r *Rig) Open() {
	r.T.Helper()
	for p := range r.N {
		r.Commit(p, []store.ConfigChange{{Collection: wire.LogRules,
			Config: &store.Config{Rules: wire.LogRulesBody{Open: true}, Etag: 1}}})
	}
	delete(r.Configs, wire.LogRules)
}

// NewReader makes another reader of the same shards.
func (r *Rig) NewReader() *sink.Reader {
	reader, err := sink.NewReader(r.Client, sink.ReaderOptions{Prefix: r.Prefix, Shards: r.N})
	if err != nil {
		r.T.Fatalf("new reader: %v", err)
	}
	return reader
}

// Key is the name of one of a shard's keys.
func (r *Rig) Key(p int, kind string) string {
	r.T.Helper()
	keys, err := r.Client.Keys(ctx, fmt.Sprintf("%s:{%d.*}:state", r.Prefix, p)).Result()
	if err != nil || len(keys) != 1 {
		r.T.Fatalf("state of shard %d: %v, %v", p, keys, err)
	}
	return keys[0][:len(keys[0])-len("state")] + kind
}

// Next is the progress that the next step of a shard commits.
func (r *Rig) Next(p int) store.Progress {
	pr := r.At[p]
	pr.Offset++
	pr.Next = "v" + strconv.FormatUint(pr.Offset, 10)
	return pr
}

// Commit commits one step to a shard, and to the model.
func (r *Rig) Commit(p int, configs []store.ConfigChange, changes ...store.CollectionChanges) {
	r.T.Helper()
	pr := r.Next(p)
	if err := r.Shards[p].Commit(ctx, pr, configs, changes); err != nil {
		r.T.Fatalf("commit: %v", err)
	}
	pr.Version = pr.Next
	r.At[p] = pr
	for _, c := range configs {
		if c.Config == nil {
			delete(r.Configs, c.Collection)
		} else {
			r.Configs[c.Collection] = *c.Config
		}
	}
	for _, c := range changes {
		docs := r.Docs[c.Collection]
		if docs == nil {
			docs = map[string]store.Stored{}
			r.Docs[c.Collection] = docs
		}
		if c.Drop == store.DropAll {
			maps.DeleteFunc(docs, func(id string, _ store.Stored) bool {
				return wire.ShardOf(r.N, c.Collection,
					wire.EscapeID(id)) == p
			})
		}
		for _, ch := range c.Changes {
			switch {
			case ch.New == nil:
				delete(docs, ch.ID)
			case ch.Body == nil:
				docs[ch.ID] = store.Stored{Header: *ch.New, Body: docs[ch.ID].Body}
			default:
				docs[ch.ID] = store.Stored{Header: *ch.New, Body: string(ch.Body)}
			}
		}
	}
}

// Configure gives a collection the same configuration in all shards; nil removes it.
func (r *Rig) Configure(collection string, c *store.Config) {
	r.T.Helper()
	for p := range r.N {
		r.Commit(p, []store.ConfigChange{{Collection: collection, Config: c}})
	}
}

// WithDefault configures a default TTL from an instant on.
func (r *Rig) WithDefault(collection string, at int64, d ttlrules.Default) {
	r.T.Helper()
	c := r.Configs[collection]
	c.History = c.History.With(at, 1<<40+uint64(len(c.History)), d) // after every document that is there
	r.Configure(collection, &c)
}

// Change makes the change that gives a document this header and body. A nil body keeps the
// stored one, and a nil header removes the document.
func (r *Rig) Change(collection, id string, h *store.Header, body []byte) store.Change {
	ch := store.Change{ID: id, New: h, Body: body}
	if old, ok := r.Docs[collection][id]; ok {
		ch.Old = &old.Header
	}
	return ch
}

// Write makes changes to a collection, one commit per shard.
func (r *Rig) Write(collection string, changes ...store.Change) {
	r.T.Helper()
	by := make([][]store.Change, r.N)
	for _, ch := range changes {
		p := wire.ShardOf(r.N, collection, wire.EscapeID(ch.ID))
		by[p] = append(by[p], ch)
	}
	for p, some := range by {
		if len(some) > 0 {
			r.Commit(p, nil, store.CollectionChanges{Collection: collection, Changes: some})
		}
	}
}

// Put writes one document.
func (r *Rig) Put(collection, id string, h store.Header, body string) {
	r.T.Helper()
	r.Write(collection, r.Change(collection, id, &h, []byte(body)))
}

// PutMany writes n documents that inherit the default TTL, all with the same timestamp.
func (r *Rig) PutMany(collection string, n int, ts int64) {
	r.T.Helper()
	changes := make([]store.Change, n)
	for i := range changes {
		id := fmt.Sprintf("doc-%06d", i)
		changes[i] = r.Change(collection, id, &store.Header{Ts: ts, Etag: uint64(i + 1)},
			[]byte(`{"n":`+strconv.Itoa(i)+`}`))
	}
	r.Write(collection, changes...)
}

// Live is the documents of a collection, in the model, that are not expired at an instant.
func (r *Rig) Live(collection string, now int64) map[string]store.Stored {
	live := map[string]store.Stored{}
	for id, d := range r.Docs[collection] {
		if !r.Configs[collection].History.Expired(d.Header.Clock(), now) {
			live[id] = d
		}
	}
	return live
}

// Dump is everything that the server holds under the rig's prefix. Two dumps show whether
// something was written between them.
func (r *Rig) Dump() map[string]string {
	r.T.Helper()
	keys, err := r.Client.Keys(ctx, string(r.Prefix)+":*").Result()
	if err != nil {
		r.T.Fatalf("keys: %v", err)
	}
	slices.Sort(keys)
	dump := map[string]string{}
	for _, k := range keys {
		switch kind := r.Client.Type(ctx, k).Val(); kind {
		case "hash":
			dump[k] = fmt.Sprint(r.Client.HGetAll(ctx, k).Val())
		case "zset":
			dump[k] = fmt.Sprint(r.Client.ZRangeWithScores(ctx, k, 0, -1).Val())
		default:
			dump[k] = kind + fmt.Sprint(r.Client.Get(ctx, k).Val())
		}
	}
	return dump
}

// WantErr fails the test unless err is want.
func WantErr(t T, err, want error, doing string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", doing, err, want)
	}
}
