// Package health keeps the current problems of a process. /readyz, the metrics and the log
// all read them from one [Board], so they agree. A problem has a name and a reason.
//
// A Board logs a problem when it begins and when it ends. It logs a changed reason too, but
// at most every 30 seconds.
package health

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// repeatAfter is the least time between two log lines of a problem whose reason changes.
const repeatAfter = 30 * time.Second

// Board keeps the current problems. It is safe for concurrent use.
type Board struct {
	*problems
	shard int // whose problems these are; NoShard for the whole process
}

// problems are those of a process, which all of its Boards share.
type problems struct {
	logger *slog.Logger

	mu      sync.Mutex
	current map[id]*problem
	known   map[string]bool // all names that were ever set, for the metric
}

type id struct {
	shard int
	name  string
}

func (i id) String() string {
	if i.shard == NoShard {
		return i.name
	}
	return Shards([]int{i.shard}) + ": " + i.name
}

type problem struct {
	reason error
	logged time.Time
	text   string // of the last log line
}

// New makes a Board without problems, which logs to logger.
func New(logger *slog.Logger) *Board {
	return &Board{problems: &problems{logger: logger, current: make(map[id]*problem), known: make(map[string]bool)}, shard: NoShard}
}

// Of returns a Board of a shard. Its problems are also those of b, where each has the shard
// before its name. The metric of b counts a problem of all shards as one; the Board of a shard
// has no metric.
func (b *Board) Of(shard int) *Board { return &Board{b.problems, shard} }

// Set sets the reason of a problem; nil ends the problem. Names are few and fixed, because
// each is a label of the metric.
func (b *Board) Set(name string, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[name] = true // also without a problem, so that the metric begins with 0
	id := id{b.shard, name}
	p := b.current[id]
	if reason == nil {
		if p != nil {
			delete(b.current, id)
			b.logger.Info("a problem is over", slog.String("problem", id.String()))
		}
		return
	}
	if p == nil {
		p = &problem{}
		b.current[id] = p
	}
	p.reason = reason
	text := oneLine(reason)
	if p.logged.IsZero() || text != p.text && time.Since(p.logged) > repeatAfter {
		p.logged, p.text = time.Now(), text
		b.logger.Warn("there is a problem", slog.String("problem", id.String()), slog.String("reason", text))
	}
}

// Forget ends problems without a log line, because nothing checks for them any more.
func (b *Board) Forget(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		delete(b.current, id{b.shard, name})
	}
}

// Err returns nil if there is no problem. Otherwise it returns all problems, one per line;
// shards that have the same one share its line. The Board of a shard returns only those of the
// shard.
func (b *Board) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all Lines
	byShard := func(a, b id) int { return cmp.Or(cmp.Compare(a.shard, b.shard), strings.Compare(a.name, b.name)) }
	for _, id := range slices.SortedFunc(maps.Keys(b.current), byShard) {
		if b.shard == NoShard || b.shard == id.shard {
			all.Add(id.shard, fmt.Errorf("%s: %w", id.name, b.current[id].reason))
		}
	}
	return all.Err()
}

var unhealthy = prometheus.NewDesc("lapse_problem", "1 while there is a problem of this name. /readyz tells the reason.", []string{"problem"}, nil)

// Describe implements [prometheus.Collector].
func (b *Board) Describe(c chan<- *prometheus.Desc) {
	if b.shard == NoShard {
		c <- unhealthy
	}
}

// Collect implements [prometheus.Collector].
func (b *Board) Collect(c chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shard != NoShard {
		return
	}
	values := make(map[string]float64)
	for id := range b.current {
		values[id.name] = 1
	}
	for name := range b.known {
		c <- prometheus.MustNewConstMetric(unhealthy, prometheus.GaugeValue, values[name], name)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
