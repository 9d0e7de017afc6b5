// Package health keeps the current problems of a process. /readyz, the metrics and the log
// all read them from one [Board], so they agree. A problem has a name and a reason.
//
// A Board logs a problem when it begins and when it ends. It logs a changed reason too, but
// at most every 30 seconds.
package health

import (
	"errors"
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
	logger *slog.Logger

	mu       sync.Mutex
	problems map[string]*problem
	known    map[string]bool // all names that were ever set, for the metric
}

type problem struct {
	reason error
	logged time.Time
	text   string // of the last log line
}

// New makes a Board without problems, which logs to logger.
func New(logger *slog.Logger) *Board {
	return &Board{logger: logger, problems: make(map[string]*problem), known: make(map[string]bool)}
}

// Set sets the reason of a problem; nil ends the problem. Names are few and fixed, because
// each is a label of the metric.
func (b *Board) Set(name string, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[name] = true // also without a problem, so that the metric begins with 0
	p := b.problems[name]
	if reason == nil {
		if p != nil {
			delete(b.problems, name)
			b.logger.Info("a problem is over", slog.String("problem", name))
		}
		return
	}
	if p == nil {
		p = &problem{}
		b.problems[name] = p
	}
	p.reason = reason
	text := oneLine(reason)
	if p.logged.IsZero() || text != p.text && time.Since(p.logged) > repeatAfter {
		p.logged, p.text = time.Now(), text
		b.logger.Warn("there is a problem", slog.String("problem", name), slog.String("reason", text))
	}
}

// Forget ends problems without a log line, because nothing checks for them any more.
func (b *Board) Forget(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		delete(b.problems, name)
	}
}

// Err returns nil if there is no problem. Otherwise it returns all problems, one per line.
func (b *Board) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []error
	for _, name := range slices.Sorted(maps.Keys(b.problems)) {
		all = append(all, fmt.Errorf("%s: %w", name, b.problems[name].reason))
	}
	return errors.Join(all...)
}

var unhealthy = prometheus.NewDesc("lapse_problem", "1 while there is a problem of this name. /readyz tells the reason.", []string{"problem"}, nil)

// Describe implements [prometheus.Collector].
func (b *Board) Describe(c chan<- *prometheus.Desc) { c <- unhealthy }

// Collect implements [prometheus.Collector].
func (b *Board) Collect(c chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.known {
		value := 0.0
		if b.problems[name] != nil {
			value = 1
		}
		c <- prometheus.MustNewConstMetric(unhealthy, prometheus.GaugeValue, value, name)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
