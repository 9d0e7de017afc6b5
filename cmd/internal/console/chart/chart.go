// Package chart places the bars of a forecast, for an SVG that stretches to the width of the page.
// All texts are outside of the SVG, so that they keep their size.
package chart

import (
	"github.com/seed18712806/lapse/sink/wire"
)

// The SVG's own units.
const (
	Width  = 1000
	Height = 100
	least  = 2 // the height of a bar of one document among many: it must be seen
)

// Chart is the bars of a forecast.
type Chart struct {
	Bars  []Bar
	Most  int64 // documents of the highest possible bar
	Total int64
	From  wire.Time
	Until wire.Time
}

// Bar is a bucket, and its place in the SVG.
type Bar struct {
	wire.Bucket
	X, Y, Width, Height float64
}

// New places buckets. Charts that are to be compared are made with the same most, at least that
// of [Most].
func New(buckets []wire.Bucket, most int64) Chart {
	c := Chart{Bars: make([]Bar, len(buckets)), Most: max(most, 1)}
	if len(buckets) == 0 {
		return c
	}
	c.From, c.Until = buckets[0].From, buckets[len(buckets)-1].Until
	const gap = 0.15 // of a bar's width
	step := float64(Width) / float64(len(buckets))
	for i, b := range buckets {
		height := Height * float64(b.Count) / float64(c.Most)
		if b.Count > 0 {
			height = max(height, least)
		}
		c.Bars[i] = Bar{Bucket: b, X: step * (float64(i) + gap/2), Y: Height - height, Width: step * (1 - gap), Height: height}
		c.Total += b.Count
	}
	return c
}

// Most is the greatest count of some buckets.
func Most(buckets ...[]wire.Bucket) (most int64) {
	for _, some := range buckets {
		for _, b := range some {
			most = max(most, b.Count)
		}
	}
	return most
}

// Highest is the bar with the most documents, the first if there are several; nil if there are
// none.
func (c Chart) Highest() *Bar {
	var highest *Bar
	for i := range c.Bars {
		if b := &c.Bars[i]; b.Count > 0 && (highest == nil || b.Count > highest.Count) {
			highest = b
		}
	}
	return highest
}
