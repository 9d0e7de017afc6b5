package sink_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// idIn is an id of a document in a shard.
func idIn(shard, shards int) string {
	for i := 0; ; i++ {
		if id := fmt.Sprint(i); wire.ShardOf(shards, "c", id) == shard {
			return id
		}
	}
}

// TestListJudgesEachShardByItsOwnHistory: a list comes to a shard whose right cuts are lower
// than those of the shard before. Either the logs of two shards have the same configuration, with
// the same etag, and each stamped it at a time of its own: TTL was turned off in the second before a
// document was due, so that never expires. Or the second has an earlier clock.
//
// It fails if the walk through a shard leaves out what is expired by another one.
func TestListJudgesEachShardByItsOwnHistory(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		on := ttlrules.History(nil).With(1_000, 1, ttlrules.NoDefault)
		for name, c := range map[string]struct {
			histories [2]ttlrules.History
			watermark int64 // of the first shard
			due       int64 // of a document in the second
		}{
			"another history": {[2]ttlrules.History{on.With(100_000, 2, ttlrules.Off), on.With(50_000, 2, ttlrules.Off)}, far,
				70_000},
			"an earlier clock": {[2]ttlrules.History{on, on}, far + 100_000, far + 60_000},
		} {
			r := newRig(t, s, 2, far)
			for p, h := range c.histories {
				r.Commit(p, []store.ConfigChange{{Collection: "c", Config: &store.Config{History: h, Etag: 2}}})
			}
			if err := s.Client.HSet(ctx, r.Key(0, "state"), "watermark", c.watermark).Err(); err != nil {
				t.Fatal(err)
			}
			id := idIn(1, 2)
			r.Put("c", id, store.Header{Ts: c.due - 60_000, Etag: 1, TTL: 60}, `{}`)
			if _, err := r.Reader.Get(ctx, "c", id); err != nil {
				t.Fatalf("%s: get: %v", name, err)
			}
			page, err := r.Reader.List(ctx, "c", sink.ListOptions{})
			if err != nil || len(page.Documents) != 1 {
				t.Errorf("%s: the list has %d documents, %v, and Get returns one", name, len(page.Documents), err)
			}
		}
	})
}

// TestAReaderOfFewerShards: a log was made anew with 16 shards, where it had 15. The state of
// shard 0 has the same key as before.
//
// It fails if the number of shards does not count: the reader looks for a document where it is not.
func TestAReaderOfFewerShards(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		const prefix = wire.Prefix("fewer")
		const was, is = 15, 16
		if err := store.New(s.Client, prefix, 0, is).Take(ctx, store.State{Log: "log", Watermark: far}, "v0", 0); err != nil {
			t.Fatal(err)
		}
		get := func(shards int) error {
			reader, err := sink.NewReader(s.Client, sink.ReaderOptions{Prefix: prefix, Shards: shards})
			if err != nil {
				t.Fatal(err)
			}
			_, err = reader.Get(ctx, "c", idIn(0, shards))
			return err
		}
		wantErr(t, get(is), sink.ErrNotFound, "a reader of 16 shards")
		err := get(was)
		wantErr(t, err, sink.ErrForeign, "a reader of 15 shards")
		if want := "Redis has the documents of 16 shards, and this reader was made for 15 shards"; err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("a reader of 15 shards: %v", err)
		}
	})
}
