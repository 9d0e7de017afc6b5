package console

import (
	"slices"
	"sort"

	"github.com/seed18712806/lapse/sink/wire"
)

// ahead is how far a forecast looks, and in how many buckets.
type ahead struct {
	Name, Text string // in the path, and for people
	buckets    int
	usual      bool // every page offers it
}

// aheads are all ranges, the shortest first.
var aheads = []ahead{
	{"1m", "1 minute", 60, false}, {"10m", "10 minutes", 60, false}, {"1h", "1 hour", 60, true},
	{"6h", "6 hours", 72, false}, {"24h", "24 hours", 48, true}, {"7d", "7 days", 84, false},
	{"30d", "30 days", 60, true}, {"90d", "90 days", 90, false}, {"365d", "1 year", 73, false},
	{"3650d", "10 years", 60, false}, farthest,
}

// farthest is the longest range that a forecast has.
var farthest = ahead{Name: "24855d", Text: "68 years", buckets: 68}

// fallback is the range if nothing expires.
const fallback = "1h"

// mattering is the part of the documents that a range must have so that no longer one is needed: a few that expire much
// later would press the others into one bar.
const mattering = 0.95

// ahead is the range that the path names. If it names none, it is the shortest one that has nearly all documents which
// expire, by each of the defaults; empty is the present one. The page offers it and the usual ones.
func (v *visit) ahead(defaults ...string) (chosen ahead, offered []ahead) {
	find := func(name string) int {
		return slices.IndexFunc(aheads, func(a ahead) bool { return a.Name == name })
	}
	at := find(v.r.URL.Query().Get("within"))
	if at < 0 {
		for _, ttl := range defaults {
			if enough, ok := v.enough(ttl); ok {
				at = max(at, enough)
			}
		}
	}
	if at < 0 {
		at = find(fallback)
	}
	for i, a := range aheads {
		if a.usual || i == at {
			offered = append(offered, a)
		}
	}
	return aheads[at], offered
}

// enough is the shortest range that has nearly all documents which expire; ok = false if none does, or nobody can tell.
func (v *visit) enough(defaultTTL string) (at int, ok bool) {
	all := v.expiring(farthest, defaultTTL)
	if all == 0 {
		return 0, false
	}
	at = sort.Search(len(aheads)-1, func(i int) bool {
		return float64(v.expiring(aheads[i], defaultTTL)) >= mattering*float64(all)
	})
	return at, true
}

// expiring is how many documents expire in a range; 0 if nobody can tell.
func (v *visit) expiring(within ahead, defaultTTL string) int64 {
	within.buckets = 1
	key := within.Name + " " + defaultTTL
	if n, ok := v.counted[key]; ok {
		return n
	}
	var n int64
	if reply, missing := v.forecast(within, defaultTTL); missing == "" && len(reply.Buckets) > 0 {
		n = reply.Buckets[0].Count
	}
	if v.counted == nil {
		v.counted = make(map[string]int64)
	}
	v.counted[key] = n
	return n
}

// later is how many documents expire behind a chart of a range.
func (v *visit) later(c Chart, defaultTTL string) int64 {
	return max(0, v.expiring(farthest, defaultTTL)-c.Total)
}

// The SVG's own units.
const (
	chartWidth  = 1000
	chartHeight = 100
	leastHeight = 2 // the height of a bar of one document among many: it must be seen
)

// Chart is the bars of a forecast.
type Chart struct {
	Bars  []bar
	Most  int64 // documents of the highest possible bar
	Total int64
	From  wire.Time
	Until wire.Time
}

// bar is a bucket, and its place in the SVG.
type bar struct {
	wire.Bucket
	X, Y, Width, Height float64
}

// newChart places buckets. Charts that are to be compared are made with the same most, at least that
// of [mostOf].
func newChart(buckets []wire.Bucket, most int64) Chart {
	c := Chart{Bars: make([]bar, len(buckets)), Most: max(most, 1)}
	if len(buckets) == 0 {
		return c
	}
	c.From, c.Until = buckets[0].From, buckets[len(buckets)-1].Until
	const gap = 0.15 // of a bar's width
	step := float64(chartWidth) / float64(len(buckets))
	for i, b := range buckets {
		height := chartHeight * float64(b.Count) / float64(c.Most)
		if b.Count > 0 {
			height = max(height, leastHeight)
		}
		c.Bars[i] = bar{Bucket: b, X: step * (float64(i) + gap/2), Y: chartHeight - height, Width: step * (1 - gap),
			Height: height}
		c.Total += b.Count
	}
	return c
}

// mostOf is the greatest count of some buckets.
func mostOf(buckets ...[]wire.Bucket) (most int64) {
	for _, some := range buckets {
		for _, b := range some {
			most = max(most, b.Count)
		}
	}
	return most
}

// Highest is the bar with the most documents, the first if there are several; nil if there are
// none.
func (c Chart) Highest() *bar {
	var highest *bar
	for i := range c.Bars {
		if b := &c.Bars[i]; b.Count > 0 && (highest == nil || b.Count > highest.Count) {
			highest = b
		}
	}
	return highest
}
