package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG6_AChangeCostsTheSameForAnyNumber: a changed default counts for every document, and costs Redis the same for ten
// documents and for ten thousand: about as many changed keys and commands.
//
// It fails if a change of the configuration changes documents or index entries one by one,
// at once or in the background.
func TestG6_AChangeCostsTheSameForAnyNumber(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	const few, many = 10, 10_000
	for collection, n := range map[string]int{"few": few, "many": many} {
		w.Configure(collection, `{"defaultTtl":1000}`)
		o := w.fill(collection, n, `{}`)
		w.settled(collection, "last", uint64(o.Etag))
	}
	w.verify()

	// cost counts the changed keys and the commands of a change, until reads show it.
	cost := func(collection string, ttl int) (changes, commands int) {
		before := w.redisWork()
		w.Configure(collection, fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
		for _, id := range []string{"0", "1", "last"} {
			w.expiresAfter(collection, id, ttl)
		}
		now := w.redisWork()
		return now.changes - before.changes, now.commands - before.commands
	}
	for _, ttl := range []int{2000, 500, 5000} {
		fewChanges, fewCommands := cost("few", ttl)
		manyChanges, manyCommands := cost("many", ttl)
		// Other work of lapse (ticks, the monitor) and the reads of this test differ by less
		// than that, also on a busy machine.
		const slack = many / 5
		if fewChanges == 0 || manyChanges > fewChanges+slack || manyCommands > fewCommands+slack {
			t.Errorf("default %d: %d changes and %d commands for %d documents, %d and %d for %d",
				ttl, fewChanges, fewCommands, few, manyChanges, manyCommands, many)
		}
	}
	w.verify()
}

// expiresAfter waits until a read of a document shows the deadline of a TTL.
func (w *world) expiresAfter(collection, id string, ttl int) {
	w.t.Helper()
	harness.Until(w.t, harness.Limit, "the new default counts", func(ctx context.Context) error {
		d, err := w.reader.Get(ctx, collection, id)
		if err == nil && (d.ExpiresAt == nil || *d.ExpiresAt != d.Ts+wire.Time(ttl)*1000) {
			err = fmt.Errorf("%s/%s of %s expires at %v", collection, id, d.Ts, d.ExpiresAt)
		}
		return err
	})
}

// work is the number of changes and commands of a Redis.
type work struct{ changes, commands int }

// redisWork returns the work that Redis has done so far.
func (w *world) redisWork() work {
	w.t.Helper()
	info, err := w.redis.Client().InfoMap(w.t.Context(), "persistence", "commandstats").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var done work
	done.changes, _ = strconv.Atoi(info["Persistence"]["rdb_changes_since_last_save"])
	for command, stats := range info["Commandstats"] {
		if command == "cmdstat_info" {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		n, _ := strconv.Atoi(calls)
		done.commands += n
	}
	return done
}
