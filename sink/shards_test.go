package sink_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestFindShards: a reader that is made without the number of shards finds it. A reader
// that is made with a wrong number returns an error with both numbers at once.
//
// Goes red if the search omits a key that shard 0 has for some number, or if a reader
// reports a state under another key as not yet stored.
func TestFindShards(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 16, 17, 63, wire.MaxShards} {
			r := newRig(t, s, n, far)
			reader := func(shards int) *sink.Reader {
				reader, err := sink.NewReader(s.Client, sink.ReaderOptions{Prefix: r.Prefix, Shards: shards})
				if err != nil {
					t.Fatal(err)
				}
				return reader
			}
			r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
			found := reader(0)
			if d, err := found.Get(ctx, "orders", "a"); err != nil || d.ID != "a" {
				t.Errorf("%d shards: %+v, %v", n, d, err)
			}
			if c, err := found.Count(ctx, "orders"); err != nil || c.Live != 1 {
				t.Errorf("%d shards: %+v, %v", n, c, err)
			}
			for _, wrong := range []int{1, 2, 4, 16, 20, 64} {
				if wrong == n {
					continue
				}
				mistaken := reader(wrong)
				for id := range 5 {
					_, err := mistaken.Get(ctx, "orders", fmt.Sprint("x", id))
					wantErr(t, err, sink.ErrForeign, fmt.Sprintf("a reader for %d of %d", wrong, n))
					if text := fmt.Sprintf("Redis has the documents of %s, and this reader was made for %s", plural(n),
						plural(wrong)); err != nil && !strings.Contains(err.Error(), text) {
						t.Errorf("a reader for %d of %d: %v", wrong, n, err)
					}
				}
			}
		}
	})
}

func plural(shards int) string {
	if shards == 1 {
		return "1 shard"
	}
	return fmt.Sprint(shards, " shards")
}

// TestFindShardsLater: while nothing is stored, a reader returns ErrUnavailable. If the log
// is replaced by another, it finds the new number.
func TestFindShardsLater(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		reader, err := sink.NewReader(s.Client, sink.ReaderOptions{Prefix: "late"})
		if err != nil {
			t.Fatal(err)
		}
		get := func() error { _, err := reader.Get(ctx, "orders", "a"); return err }
		wantErr(t, get(), sink.ErrUnavailable, "get of nothing")
		take := func(n int) {
			t.Helper()
			for p := range n {
				if err := store.New(s.Client, "late", p, n).Take(ctx, store.State{Log: fmt.Sprint(n)}, "v", 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		take(16)
		wantErr(t, get(), sink.ErrNotFound, "get from 16 shards")
		for _, n := range []int{3, 64} {
			s.Client.FlushAll(ctx)
			wantErr(t, get(), sink.ErrUnavailable, "get after a flush")
			take(n)
			wantErr(t, get(), sink.ErrUnavailable, "the first get from the new log")
			wantErr(t, get(), sink.ErrNotFound, "the next get from the new log")
		}
		take(5) // beside the other
		other, err := sink.NewReader(s.Client, sink.ReaderOptions{Prefix: "late"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Get(ctx, "orders", "a")
		wantErr(t, err, sink.ErrForeign, "two logs")
	})
}

// TestRefused: the error of a shard that is damaged and cannot be rebuilt says so.
func TestRefused(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		s.Client.HSet(ctx, r.Key(0, "state"), "rebuild", "refused")
		_, err := r.Reader.Get(ctx, "orders", "a")
		wantErr(t, err, sink.ErrUnavailable, "get")
		if err == nil || !strings.HasSuffix(err.Error(), "Redis has lost data, and the log no longer reaches back to "+
			"rebuild it; see /readyz of the process that owns the shard") {
			t.Errorf("get: %v", err)
		}
	})
}

// TestReaderAfterBeginAnew: a log has lost its end, and a person lets the shard begin anew. A
// reader that has seen more of it is not available until the log is as long again. A new one is.
//
// It fails if such a reader answers from less than it has seen, or never recovers.
func TestReaderAfterBeginAnew(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		p := store.New(s.Client, "anew", 0, 1)
		get := func(reader *sink.Reader) error { _, err := reader.Get(ctx, "orders", "a"); return err }
		reader := func() *sink.Reader {
			reader, err := sink.NewReader(s.Client, sink.ReaderOptions{Prefix: "anew"})
			if err != nil {
				t.Fatal(err)
			}
			return reader
		}
		old := reader()
		if err := p.Take(ctx, store.State{Log: "log", Offset: 100, Watermark: far}, "v0", 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, get(old), sink.ErrNotFound, "get at 100")
		if err := p.Clear(ctx, "v0", store.State{Version: "v1", Log: "log"}, 50); err != nil {
			t.Fatal(err)
		}
		wantErr(t, get(reader()), sink.ErrUnavailable, "get during the rebuild")
		version := "v1"
		for _, step := range []struct {
			offset uint64
			want   error // of the reader that has seen 100
		}{{50, sink.ErrUnavailable}, {99, sink.ErrUnavailable}, {100, sink.ErrNotFound}} {
			next := fmt.Sprint("at", step.offset)
			if err := p.Commit(ctx, store.Progress{Version: version, Next: next, Offset: step.offset, Watermark: far}, nil,
				nil); err != nil {
				t.Fatal(err)
			}
			version = next
			wantErr(t, get(old), step.want, "the former reader "+next)
			wantErr(t, get(reader()), sink.ErrNotFound, "a new reader "+next)
		}
	})
}
