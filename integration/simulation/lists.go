package simulation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// keptState is what Redis held when the plan had a step list.
type keptState struct {
	redismodel.Snapshot
	at time.Time // by its clock
}

// checkLists reads lists of what Redis held, with the real Reader. The scripts need a Redis, so each
// moment is copied to the embedded one.
func checkLists(moments []keptState) error {
	if len(moments) == 0 {
		return nil
	}
	server := embedded.New(nil)
	defer server.Close()
	client := redis.NewClient(&redis.Options{Dialer: server.Dial, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	for i, m := range moments {
		model := redismodel.New(redismodel.Options{Now: func() time.Time { return m.at }})
		model.Restore(m.Snapshot)
		server.SetTime(m.at)
		to := wire.Prefix(fmt.Sprint("moment", i))
		names, _, err := copyTo(store.New(client, to, 0, 1), model)
		if err != nil {
			return fmt.Errorf("copy Redis for a list: %w", err)
		}
		reader, err := sink.NewReader(client, sink.ReaderOptions{Prefix: to, Shards: 1})
		if err != nil {
			return err
		}
		for _, name := range names {
			l := lists{reader: reader, collection: name, limit: 1 + (i+len(name))%4}
			if err := l.check(model); err != nil {
				return fmt.Errorf("H19: at %s in pages of %d: %w", wire.Time(m.at.UnixMilli()), l.limit, err)
			}
		}
	}
	return nil
}

// copyTo copies what a reader may read, and returns the collections with documents. It copies nothing if a reader may
// not
// read.
func copyTo(to *store.Shard, model *redismodel.Server) (names []string, copied bool, err error) {
	ctx := context.Background()
	state, err := model.Load(ctx)
	if err != nil || state.Version == "" || state.Rebuild != 0 || state.Refused ||
		model.Verify(ctx, state.Version, state.Collections) != nil {
		return nil, false, nil //nolint:nilerr // a reader gets an error too
	}
	if err := to.Take(ctx, store.State{Log: state.Log, Watermark: state.Watermark}, state.Version, 0); err != nil {
		return nil, false, err
	}
	var configs []store.ConfigChange
	for name, c := range state.Configs {
		configs = append(configs, store.ConfigChange{Collection: name, Config: &c})
	}
	changes := map[string]*store.CollectionChanges{}
	for _, d := range model.Documents() {
		// Names with a dot are those of old generations.
		if strings.Contains(d.Collection, ".") {
			continue
		}
		c := changes[d.Collection]
		if c == nil {
			c = &store.CollectionChanges{Collection: d.Collection}
			changes[d.Collection] = c
		}
		c.Changes = append(c.Changes, store.Change{ID: d.ID, New: &d.Header, Body: []byte(d.Body)})
	}
	var all []store.CollectionChanges
	names = slices.Sorted(maps.Keys(changes))
	for _, name := range names {
		all = append(all, *changes[name])
	}
	copyEntries(all, model)
	pr := store.Progress{Version: state.Version, Next: "copied", Offset: state.Offset, Watermark: state.Watermark}
	return names, true, to.Commit(ctx, pr, configs, all)
}

// lists are the lists of a collection.
type lists struct {
	reader     *sink.Reader
	collection string
	limit      int
}

// check compares the lists of a collection with single reads: each live document is in a list once,
// and in the order that was asked for.
func (l lists) check(model *redismodel.Server) error {
	var live []redismodel.Document // by id
	for _, d := range model.Documents() {
		if d.Collection != l.collection {
			continue
		}
		if d, err := model.Get(l.collection, d.ID); err == nil {
			live = append(live, d)
		}
	}
	if err := l.compare(sink.ListOptions{}, live); err != nil {
		return err
	}
	expire := slices.DeleteFunc(slices.Clone(live), func(d redismodel.Document) bool { return d.ExpiresAt == nil })
	slices.SortFunc(expire, func(a, b redismodel.Document) int {
		return cmp.Or(cmp.Compare(*a.ExpiresAt, *b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	if err := l.compare(sink.ListOptions{Order: wire.ByDeadline}, expire); err != nil || len(expire) == 0 {
		return err
	}
	until := *expire[len(expire)/2].ExpiresAt
	soon := slices.DeleteFunc(expire, func(d redismodel.Document) bool { return *d.ExpiresAt > until })
	return l.compare(sink.ListOptions{Order: wire.ByDeadline, Until: &until}, soon)
}

// compare compares all pages of a list with documents. A list without an order is sorted first.
func (l lists) compare(opts sink.ListOptions, want []redismodel.Document) error {
	opts.Limit = l.limit
	var got []string
	for {
		page, err := l.reader.List(context.Background(), l.collection, opts)
		if err != nil {
			return fmt.Errorf("a list of %s: %w", l.collection, err)
		}
		if len(page.Documents) > l.limit {
			return fmt.Errorf("a page of %s has %d documents", l.collection, len(page.Documents))
		}
		for _, d := range page.Documents {
			got = append(got, fmt.Sprint(d.ID, "/", d.Etag))
		}
		if opts.Continuation = page.Continuation; opts.Continuation == "" {
			break
		}
	}
	if opts.Order == "" {
		slices.Sort(got)
	}
	wanted := make([]string, 0, len(want))
	for _, d := range want {
		wanted = append(wanted, fmt.Sprint(d.ID, "/", d.Header.Etag))
	}
	if opts.Order == "" {
		slices.Sort(wanted)
	}
	if !slices.Equal(got, wanted) {
		return fmt.Errorf("a list of %s, order %q, has %s, and single reads find %s", l.collection, opts.Order, got,
			wanted)
	}
	return nil
}
