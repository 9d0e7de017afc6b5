package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	pointEvery = 30 * time.Second
	// keepPoints is how far back the charts reach.
	keepPoints = time.Hour
	leastSpan  = 5 * time.Minute // of the axis of time
	// mostCounted is how many collections are counted, the first by name: each costs a read.
	mostCounted = 100
	countWithin = 5 * time.Second
)

// point is what happened between the point before it and its instant. What is nil is not known.
type point struct {
	at               time.Time
	applied, events  *float64 // a second
	p50, p99         *float64 // seconds
	live             *float64 // documents of all collections
	ofEachCollection map[string]int64
}

// between makes a point of two samples. A counter that has gone back was made anew: it tells nothing.
func between(before, now sample) point {
	p := point{at: now.at, live: now.live}
	seconds := now.at.Sub(before.at).Seconds()
	grown := func(now, before float64) *float64 {
		if now < before || seconds <= 0 {
			return nil
		}
		rate := (now - before) / seconds
		return &rate
	}
	p.applied, p.events = grown(now.applied, before.applied), grown(now.events, before.events)
	if p.events != nil {
		late := difference(now.late, before.late)
		p.p50, p.p99 = quantile(late, 0.5), quantile(late, 0.99)
	}
	return p
}

// remember adds a point once it is time for one. The recorder must be locked.
func (r *recorder) remember(s sample) {
	if r.last.at.IsZero() {
		r.last = s
	}
	if s.at.Sub(r.last.at) < pointEvery {
		return
	}
	p := between(r.last, s)
	if s.at.Sub(r.counted) < 2*pointEvery {
		p.ofEachCollection = r.counts
	}
	r.last, r.points = s, append(r.points, p)
	old := 0
	for old < len(r.points) && s.at.Sub(r.points[old].at) > keepPoints {
		old++
	}
	r.points = slices.Delete(r.points, 0, old)
}

// count counts the collections for the next point until ctx is done.
func (r *recorder) count(ctx context.Context) {
	tick := time.NewTicker(pointEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, countWithin)
		page, err := r.collections(asking, mostCounted)
		cancel()
		if err == nil { // otherwise the page says what is wrong, and the chart has a gap
			counts := make(map[string]int64, len(page.Collections))
			for _, c := range page.Collections {
				counts[c.Name] = c.Live
			}
			r.mu.Lock()
			r.counts, r.counted = counts, time.Now()
			r.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// history is the charts of the last hour.
func (r *recorder) history(now time.Time) []series {
	r.mu.Lock()
	points := slices.Clone(r.points)
	r.mu.Unlock()
	all := []series{
		newSeries("Writes per second", rate, now, points, curve{of: func(p point) *float64 { return p.applied }}),
		newSeries("Events per second", rate, now, points, curve{of: func(p point) *float64 { return p.events }}),
		newSeries("Lateness of events", secondsText, now, points,
			curve{"p50", func(p point) *float64 { return p.p50 }}, curve{"p99", func(p point) *float64 { return p.p99 }}),
		newSeries("Live documents", whole, now, points, curve{of: func(p point) *float64 { return p.live }}),
	}
	return slices.DeleteFunc(all, func(s series) bool { return s.Empty() })
}

// liveHistory is the chart of the live documents of a collection.
func (r *recorder) liveHistory(now time.Time, collection string) series {
	r.mu.Lock()
	points := slices.Clone(r.points)
	r.mu.Unlock()
	return newSeries("Live documents", whole, now, points, curve{of: func(p point) *float64 {
		n, ok := p.ofEachCollection[collection]
		if !ok {
			return nil
		}
		live := float64(n)
		return &live
	}})
}

// curve is one line of a chart. The only one of a chart has no name.
type curve struct {
	Name string
	of   func(point) *float64
}

// series is a chart of the last hour: lines over time.
type series struct {
	Title       string
	Most        string // the top of the scale
	From, Until wire.Time
	Lines       []line
}

// line is a curve, and its place in the SVG: one path for each stretch without a gap.
type line struct {
	Name    string
	Paths   []string
	Last    string // with the word now, if it is the newest point
	Lowest  string
	Highest string
}

// newSeries draws curves over the last hour. write writes a value for people.
func newSeries(title string, write func(float64) string, now time.Time, points []point, curves ...curve) series {
	over := leastSpan // what a process that is young has to show
	if len(points) > 0 {
		over = min(max(over, now.Sub(points[0].at)), keepPoints)
	}
	s := series{Title: title, From: wire.Time(now.Add(-over).UnixMilli()), Until: wire.Time(now.UnixMilli())}
	most := 0.0
	for _, c := range curves {
		for _, p := range points {
			if v := c.of(p); v != nil {
				most = max(most, *v)
			}
		}
	}
	s.Most = write(most)
	for _, c := range curves {
		if l, ok := newLine(c, write, now, over, points, most); ok {
			s.Lines = append(s.Lines, l)
		}
	}
	return s
}

func newLine(c curve, write func(float64) string, now time.Time, over time.Duration, points []point,
	most float64) (l line, ok bool) {
	l.Name = c.Name
	var path strings.Builder
	var before *point
	var last, lowest, highest float64
	end := func() {
		if path.Len() > 0 {
			l.Paths = append(l.Paths, path.String())
			path.Reset()
		}
	}
	for i, p := range points {
		v := c.of(p)
		if v == nil || before != nil && p.at.Sub(before.at) > 2*pointEvery { // the process stood still
			end()
		}
		before = &points[i]
		if v == nil {
			continue
		}
		y := float64(chartHeight)
		if most > 0 {
			y -= chartHeight * *v / most
		}
		x := chartWidth * (1 - float64(now.Sub(p.at))/float64(over))
		if path.Len() == 0 {
			fmt.Fprintf(&path, "M%.1f %.1fh.1", x, y) // a point alone must be seen
		} else {
			fmt.Fprintf(&path, "L%.1f %.1f", x, y)
		}
		if !ok {
			lowest, highest = *v, *v
		}
		last, lowest, highest, ok = *v, min(lowest, *v), max(highest, *v), true
	}
	end()
	l.Last, l.Lowest, l.Highest = write(last)+" last", write(lowest), write(highest)
	if len(points) > 0 {
		if p := points[len(points)-1]; c.of(p) != nil && now.Sub(p.at) <= 2*pointEvery {
			l.Last = write(last) + " now"
		}
	}
	return l, ok
}

// Empty reports whether there is nothing to draw.
func (s series) Empty() bool { return len(s.Lines) == 0 }

// Text says what the chart shows.
func (s series) Text() string {
	parts := make([]string, len(s.Lines))
	for i, l := range s.Lines {
		name := ""
		if l.Name != "" {
			name = l.Name + " "
		}
		parts[i] = fmt.Sprintf("%s%s, %s to %s", name, l.Last, l.Lowest, l.Highest)
	}
	return strings.Join(parts, "; ")
}
