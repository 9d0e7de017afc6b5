package sink_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// infoNumber is a number in a server's INFO.
func infoNumber(t *testing.T, client *redis.Client, section, field string) int64 {
	t.Helper()
	info, err := client.InfoMap(ctx, section).Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(info[strings.ToUpper(section[:1])+section[1:]][field], 10, 64)
	if err != nil {
		t.Fatalf("%s %s: %v", section, field, err)
	}
	return n
}

// replyBytes is the number of bytes of a page as a reply.
func replyBytes(page sink.Page) int64 {
	reply := wire.ListReply{Continuation: page.Continuation}
	for _, d := range page.Documents {
		reply.Documents = append(reply.Documents, wire.Document{ID: d.ID, Etag: d.Etag, Ts: d.Ts, ExpiresAt: d.ExpiresAt,
			Document: d.Body})
	}
	return int64(len(reply.Encode()))
}

// TestListSendsLittle: Redis sends at most twice the bytes of the pages, and the heads of the
// replies, whatever the sizes of the documents are and however many are expired. It has few
// documents in memory at a time for it.
//
// Goes red if a script returns bodies that do not belong to the page, or loads as many documents
// at a time as a page may have.
func TestListSendsLittle(t *testing.T) {
	const (
		shards   = 4
		heads    = 16 << 10 // heads of replies, and documents that were sent in vain
		mostHeld = 12 << 20 // memory of Redis while it answers
	)
	size := func(i int, r *rand.Rand) int {
		switch i % 4 {
		case 0:
			return 900_000 - r.IntN(300_000)
		case 1:
			return 1
		case 2:
			return 1 << r.IntN(20)
		default:
			return 100 + r.IntN(1000)
		}
	}
	for _, tt := range []struct {
		name            string
		n               int
		size            func(i int, r *rand.Rand) int
		expired         int // of 100
		limit, maxBytes int
	}{
		{"mixed", 200, size, 0, 1000, 900_000},
		{"mixed, half of it expired", 200, size, 50, 100, 900_000},
		{"mixed, nearly all of it expired", 300, size, 95, 100, 900_000},
		{"mixed, all of it expired", 100, size, 100, 1000, 900_000},
		{"mixed, small pages", 100, size, 10, 3, 0},
		{"mixed, without a limit of bytes", 100, size, 10, 1000, 0},
		{"small", 5000, func(i int, _ *rand.Rand) int { return 1 + i%300 }, 0, 1000, 900_000},
		{"small, nearly all of it expired", 5000, func(i int, _ *rand.Rand) int { return 1 + i%300 }, 95, 100, 900_000},
		{"small, small pages", 300, func(i int, _ *rand.Rand) int { return 1 + i%300 }, 50, 3, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client
			r := newRig(t, server, shards, far)
			r.WithDefault("orders", 0, 60)
			random := rand.New(rand.NewPCG(1, 2))
			for i := range tt.n {
				h := store.Header{Ts: far, Etag: uint64(i + 1), Trace: strings.Repeat("t", 55)}
				if i%3 == 0 {
					h.TTL = 60
				}
				if random.IntN(100) < tt.expired {
					h.Ts = far - 100_000
				}
				r.Put("orders", fmt.Sprintf("document-%06d", i), h, strings.Repeat("x", tt.size(i, random)))
			}
			live := r.Live("orders", far)
			if _, err := r.Reader.List(ctx, "orders", sink.ListOptions{Limit: 1}); err != nil { // loads the script
				t.Fatal(err)
			}
			before := infoNumber(t, client, "stats", "total_net_output_bytes")
			used := infoNumber(t, client, "memory", "used_memory")
			returned, times, pages := int64(0), map[string]int{}, int64(0)
			opts := sink.ListOptions{Limit: tt.limit, MaxBytes: tt.maxBytes}
			for {
				page, err := r.Reader.List(ctx, "orders", opts)
				if err != nil {
					t.Fatal(err)
				}
				returned += replyBytes(page)
				pages++
				for _, d := range page.Documents {
					times[d.ID]++
					if want := live[d.ID]; string(d.Body) != want.Body {
						t.Errorf("%s has %d bytes, want %d", d.ID, len(d.Body), len(want.Body))
					}
				}
				if opts.Continuation = page.Continuation; opts.Continuation == "" {
					break
				}
			}
			sent := infoNumber(t, client, "stats", "total_net_output_bytes") - before
			held := infoNumber(t, client, "memory", "used_memory_peak") - used
			t.Logf("%d documents, %d live, on %d pages of %d bytes: Redis sent %d bytes (%.2f times that), and took %d bytes "+
				"of memory for it",
				tt.n, len(live), pages, returned, sent, float64(sent)/float64(returned), held)
			if most := 2*returned + heads; sent > most {
				t.Errorf("Redis sent %d bytes: allowed are %d", sent, most)
			}
			if held > mostHeld {
				t.Errorf("Redis took %d bytes of memory to answer: allowed are %d", held, mostHeld)
			}
			if len(times) != len(live) {
				t.Errorf("%d documents are listed, want %d", len(times), len(live))
			}
			for id, n := range times {
				if _, ok := live[id]; n != 1 || !ok {
					t.Errorf("%s is listed %d times; it is live: %t", id, n, ok)
				}
			}
		})
	}
}

// TestListScriptsAreShort: a script of a list loads documents until they have a mebibyte, and examines 2,000 members of
// an index at most. Another one goes on with the page.
func TestListScriptsAreShort(t *testing.T) {
	const size, loads, examines = 4096, 256, 2000 // 256 values of this size have a mebibyte
	header := store.Header{Ts: far, Etag: 1}
	large := []byte(strings.Repeat("x", size-len(header.Append(nil))))
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, tt := range []struct {
			name          string
			documents     int
			body          []byte
			prefix        string
			scripts, seen int
		}{
			{"a mebibyte", loads, large, "", 1, loads},
			{"more than a mebibyte", loads + 1, large, "", 2, loads + 1},
			{"2,000 members", examines, []byte("{}"), "none", 1, 0},
			{"2,001 members", examines + 1, []byte("{}"), "none", 2, 0},
		} {
			r := newRig(t, s, 1, far)
			r.WithDefault("orders", 0, 1000)
			var changes []store.Change
			for i := range tt.documents {
				changes = append(changes, r.Change("orders", fmt.Sprint(i), &header, tt.body))
			}
			r.Write("orders", changes...)
			scripts := -1 // without the one that reads the configuration
			reader := r.readerMeanwhile(t, func() { scripts++ })
			page, err := reader.List(ctx, "orders", sink.ListOptions{Limit: wire.MaxListLimit, Prefix: tt.prefix})
			if err != nil || scripts != tt.scripts || len(page.Documents) != tt.seen || page.Continuation != "" {
				t.Errorf("%s: %d documents by %d scripts, want %d by %d; %v", tt.name, len(page.Documents), scripts, tt.seen,
					tt.scripts, err)
			}
		}
	})
}

// TestListAmongExpired: a list passes over expired documents at once, however many there are.
func TestListAmongExpired(t *testing.T) {
	const n = 45_000
	r := newRig(t, redistest.Start(t), 1, far)
	r.WithDefault("orders", 0, 60)
	r.PutMany("orders", n, far-100_000)
	for i := range 10 {
		r.Put("orders", fmt.Sprint("live-", i), store.Header{Ts: far, Etag: 1}, "{}")
	}
	if times, pages := r.list("orders", sink.ListOptions{Limit: 1000}); len(times) != 10 || pages != 1 {
		t.Errorf("%d documents on %d pages", len(times), pages)
	}
}

// TestListOfShardsThatDiffer: a change of the default has reached one shard and not
// the other. A page judges the documents of each by the configuration that this one has.
//
// It fails if the scan of one shard passes over documents by the cuts of another.
func TestListOfShardsThatDiffer(t *testing.T) {
	const n = 50
	r := newRig(t, redistest.StartMini(t), 2, far)
	r.WithDefault("orders", 0, 1000)
	r.PutMany("orders", n, far-100_000)
	expired := 0
	for id := range r.Docs["orders"] {
		if wire.ShardOf(2, "orders", wire.EscapeID(id)) == 0 {
			expired++
		}
	}
	changed := r.Configs["orders"]
	changed.History, changed.Etag = changed.History.With(far, 2, 60), 2
	r.Commit(0, []store.ConfigChange{{Collection: "orders", Config: &changed}})
	if times, _ := r.list("orders", sink.ListOptions{Limit: 100}); expired == 0 || len(times) != n-expired {
		t.Errorf("%d documents are listed, want %d: %d of %d are expired, in the first shard", len(times), n-expired, expired,
			n)
	}
}
