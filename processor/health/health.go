// Package health keeps the current problems of a process. /readyz, the metrics, the log and the
// console all read them from one [Board], so they agree. Whoever finds a [Problem] declares its name
// and its advice, once.
//
// A Board logs a problem when it begins and when it ends. It logs a changed reason too, but
// at most every 30 seconds.
package health

import (
	"cmp"
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
	shards []int // the shard whose problems these are; nil for the whole process
}

// problems are those of a process, which all of its Boards share.
type problems struct {
	logger *slog.Logger

	mu      sync.Mutex
	current map[string]*entry // by the title
	known   map[string]bool   // all names that were ever set, for the metric
}

// entry is a problem and its last log line.
type entry struct {
	Problem
	at   time.Time
	text string
}

// New makes a Board without problems, which logs to logger.
func New(logger *slog.Logger) *Board {
	return &Board{problems: &problems{logger: logger, current: make(map[string]*entry), known: make(map[string]bool)}}
}

// Of returns a Board of a shard. Its problems are also those of b, where each has the shard
// before its name. The metric of b counts a problem of all shards as one; the Board of a shard
// has no metric.
func (b *Board) Of(shard int) *Board { return &Board{b.problems, []int{shard}} }

// Set sets the reason of a problem; nil ends the problem.
func (b *Board) Set(problem Problem, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[problem.Name] = true // also without a problem, so that the metric begins with 0
	problem.Reason, problem.Shards = reason, b.shards
	title := problem.title()
	p := b.current[title]
	if reason == nil {
		if p != nil {
			delete(b.current, title)
			b.logger.Info("a problem is over", slog.String("problem", title))
		}
		return
	}
	if p == nil {
		p = &entry{}
		b.current[title] = p
	}
	p.Problem = problem
	text := oneLine(reason)
	if p.at.IsZero() || text != p.text && time.Since(p.at) > repeatAfter {
		p.at, p.text = time.Now(), text
		b.logger.Warn("there is a problem", slog.String("problem", title), slog.String("reason", text),
			slog.String("runbook", problem.Link()))
	}
}

// Forget ends problems without a log line, because nothing checks for them any more.
func (b *Board) Forget(problems ...Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range problems {
		p.Shards = b.shards
		delete(b.current, p.title())
	}
}

// Problems returns all problems that are not minor; shards that have the same one share it. The Board of a shard
// returns only those of the shard.
func (b *Board) Problems() Problems { return b.problemsOf(false) }

// Minor returns the minor ones.
func (b *Board) Minor() Problems { return b.problemsOf(true) }

func (b *Board) problemsOf(minor bool) (all Problems) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byShard := func(a, b *entry) int {
		return cmp.Or(slices.Compare(a.Shards, b.Shards), strings.Compare(a.Name, b.Name))
	}
	for _, p := range slices.SortedFunc(maps.Values(b.current), byShard) {
		if p.Minor == minor && (b.shards == nil || slices.Equal(b.shards, p.Shards)) {
			all.Add(p.Problem)
		}
	}
	return all
}

// Err returns the problems as an error; nil if there is none.
func (b *Board) Err() error { return b.Problems().Err() }

var unhealthy = prometheus.NewDesc("lapse_problem", "1 while there is a problem of this name. /readyz tells the "+
	"reason.", []string{"problem"}, nil)

// Describe implements [prometheus.Collector].
func (b *Board) Describe(c chan<- *prometheus.Desc) {
	if b.shards == nil {
		c <- unhealthy
	}
}

// Collect implements [prometheus.Collector].
func (b *Board) Collect(c chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shards != nil {
		return
	}
	values := make(map[string]float64)
	for _, p := range b.current {
		values[p.Name] = 1
	}
	for name := range b.known {
		c <- prometheus.MustNewConstMetric(unhealthy, prometheus.GaugeValue, values[name], name)
	}
}
