package console

import (
	"github.com/seed18712806/lapse/sink/wire"
)

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

// Bar is a bucket, and its place in the SVG.
type bar struct {
	wire.Bucket
	X, Y, Width, Height float64
}

// newChart places buckets. Charts that are to be compared are made with the same most, at least that
// of [Most].
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
		c.Bars[i] = bar{Bucket: b, X: step * (float64(i) + gap/2), Y: chartHeight - height, Width: step * (1 - gap), Height: height}
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
