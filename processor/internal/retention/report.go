package retention

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// The places that keep bytes of documents.
const (
	inLog       = "log"
	inSnapshots = "snapshots"
	inEvents    = "events"
	inRedis     = "redis"
)

// unknownAfter is how long the keeper may fail before it knows anything.
const unknownAfter = time.Minute

// Report is what a keeper knows.
type Report struct {
	// Oldest is, by place, for how long at most bytes are kept there of a document that has expired, or
	// was deleted or overwritten. A place of which this process knows nothing is absent.
	Oldest map[string]time.Duration
	// Clean is, by place, an instant in Unix milliseconds: nothing is left there of what had died before it.
	Clean     map[string]int64
	Snapshots int       // that count; two are wanted
	Offset    uint64    // of the newest; 0 if there is none
	Taken     time.Time // the newest; zero if there is none
	Documents uint64    // of the newest
	Bytes     uint64    // of all
}

// cleanSince are the instants before which nothing is left, by place.
func (k *Keeper) cleanSince(info *jetstream.StreamInfo) map[string]int64 {
	created := info.Created.UnixMilli()
	clean := map[string]int64{inLog: created, inSnapshots: created}
	if begun := begunBefore(k.generations); begun > 0 {
		clean[inLog] = k.kept.Log.upTo(info.State.FirstSeq, created)
		clean[inSnapshots] = k.kept.Objects.behind(begun, k.oldest, created)
	}
	if k.Names.Shard == 0 && !k.denied {
		clean[inRedis] = max(k.kept.Redis, created)
	}
	for place, since := range clean {
		clean[place] = max(since, k.kept.Rested[place])
	}
	return clean
}

// clean reports whether nothing is left that should be gone, but for events.
func (k *Keeper) clean(info *jetstream.StreamInfo) bool {
	for place, since := range k.cleanSince(info) {
		if since <= k.stirredIn(place) {
			return false
		}
	}
	return true
}

// Report tells what the keeper knows now; it is zero before it knows anything.
func (k *Keeper) Report(now time.Time) (r Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.report(now)
}

func (k *Keeper) report(now time.Time) (r Report) {
	if k.seen == nil {
		return r
	}
	r.Oldest, r.Clean = make(map[string]time.Duration), make(map[string]int64)
	for place, since := range k.cleanSince(k.seen) {
		r.Oldest[place], r.Clean[place] = 0, k.goneBefore(place, since)
		if since <= k.stirredIn(place) { // else nothing has died since
			r.Oldest[place] = max(0, now.Sub(time.UnixMilli(since)))
		}
	}
	if k.Names.Shard == 0 && k.eventsAge > 0 {
		r.Clean[inEvents] = k.eventsSince(now)
		r.Oldest[inEvents] = now.Sub(time.UnixMilli(r.Clean[inEvents]))
	}
	r.Snapshots = len(k.generations)
	for _, g := range k.generations {
		r.Bytes += g.Bytes
	}
	if len(k.generations) > 0 {
		newest := k.generations[0]
		r.Documents, r.Taken, r.Offset = newest.Documents, time.UnixMilli(newest.Taken), newest.Offset
	}
	return r
}

// eventsSince is the instant before which no event is left.
func (k *Keeper) eventsSince(now time.Time) int64 {
	return k.kept.Events.before(now.Add(-k.eventsAge).UnixMilli(), k.seen.Created.UnixMilli())
}

// Known is the report for others, nil if the keeper knows nothing yet.
func (k *Keeper) Known(now time.Time) *wire.Retention {
	r := k.Report(now)
	if r.Oldest == nil {
		return nil
	}
	known := &wire.Retention{
		Snapshots: r.Snapshots, Offset: r.Offset, Documents: r.Documents, Bytes: r.Bytes,
		Oldest: make(map[string]float64), Within: k.within.Seconds(), CleanSince: make(map[string]wire.Time),
	}
	for place, since := range r.Clean {
		known.CleanSince[place] = wire.Time(since)
	}
	if !r.Taken.IsZero() {
		known.Taken = wire.Time(r.Taken.UnixMilli())
	}
	for place, oldest := range r.Oldest {
		known.Oldest[place] = oldest.Round(time.Millisecond).Seconds()
	}
	return known
}

// Problem is why the promise is broken; nil if it is not. A promise that was made only now is not broken
// by what is older.
func (k *Keeper) Problem(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil { // it has never succeeded
		if k.failure == nil || now.Sub(k.failing) < min(k.within, unknownAfter) {
			return nil
		}
		return fmt.Errorf("lapse does not know what is kept of documents that are gone, and removes nothing: %w", k.failure)
	}
	r := k.report(now)
	var all []error
	for _, place := range []string{inLog, inSnapshots, inEvents, inRedis} {
		oldest := r.Oldest[place]
		if oldest > k.within && now.Sub(time.UnixMilli(k.kept.Since)) > k.within {
			all = append(all, fmt.Errorf("%s may have bytes of documents that are gone for %s, and --forget-within promises %s", places[place], oldest.Round(time.Second), k.within))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", errors.Join(all...), cmp.Or(k.failure, errBehind))
}

var errBehind = errors.New("snapshots, or the rewriting of files, take too long, or --log-max-bytes leaves the log no room (64 MiB) to end its files")

var places = map[string]string{inLog: "the log", inSnapshots: "the snapshots", inEvents: "the events", inRedis: "Redis's files"}
