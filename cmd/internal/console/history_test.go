package console

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestHistory: the charts are of the last hour, rates and lateness are between two points, a counter
// that was made anew leaves a gap, and what is not known is not drawn.
func TestHistory(t *testing.T) {
	r, s := &recorder{}, sample{at: time.Now(), late: []bucket{{0.001, 0}, {1, 0}, {0, 0}}}
	record := func(points int, change func(*sample)) {
		for range points * int(pointEvery/sampleEvery) {
			s.at = s.at.Add(sampleEvery)
			change(&s)
			r.remember(s)
		}
	}
	texts := func() map[string]string {
		all := map[string]string{}
		for _, chart := range r.history(s.at) {
			all[chart.Title] = chart.Text()
		}
		return all
	}
	r.remember(s)
	if all := texts(); len(all) != 0 {
		t.Errorf("before the first point: %v", all)
	}
	record(2, func(s *sample) { s.applied += 40 })
	r.counts, r.counted = map[string]int64{"orders": 7}, s.at
	live := 12.0
	record(1, func(s *sample) {
		late := []bucket{{0.001, s.late[0].count + 10}, {1, s.late[1].count + 10}, {0, s.late[2].count + 10}}
		s.applied, s.events, s.late, s.live = s.applied+100, s.events+10, late, &live
	})
	record(1, func(s *sample) { s.applied = 0 })
	record(1, func(s *sample) { s.applied += 50 })
	want := map[string]string{
		"Writes per second": "10.0 now, 8.00 to 20.0", "Events per second": "0.00 now, 0.00 to 2.00",
		"Lateness of events": "p50 0.5 ms last, 0.5 ms to 0.5 ms; p99 1.0 ms last, 1.0 ms to 1.0 ms",
		"Live documents":     "12 now, 12 to 12",
	}
	if diff := cmp.Diff(want, texts()); diff != "" {
		t.Error(diff)
	}
	if paths := r.history(s.at)[0].Lines[0].Paths; len(paths) != 2 {
		t.Errorf("the rate of writes has the paths %q, want a gap", paths)
	}
	if text := r.liveHistory(s.at, "orders").Text(); text != "7 last, 7 to 7" {
		t.Errorf("live documents of orders: %s", text)
	}
	if chart := r.liveHistory(s.at, "none"); !chart.Empty() {
		t.Errorf("live documents of a collection that was not counted: %+v", chart)
	}
	record(300, func(*sample) {})
	if most := int(keepPoints/pointEvery) + 1; len(r.points) > most {
		t.Errorf("%d points are kept, want at most %d", len(r.points), most)
	}
}

// TestCollectionsAreCounted: the recorder keeps a count for the next point, and none after a failure.
func TestCollectionsAreCounted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	r := &recorder{metrics: prometheus.NewRegistry(), collections: func(_ context.Context,
		most int) (wire.CollectionsReply, error) {
		if asked++; asked > 1 || most != mostCounted {
			return wire.CollectionsReply{}, errors.New("Redis is away")
		}
		cancel()
		return wire.CollectionsReply{Collections: []wire.Collection{{Name: "orders", Live: 3}}}, nil
	}}
	r.count(ctx)
	if diff := cmp.Diff(map[string]int64{"orders": 3}, r.counts); diff != "" {
		t.Error(diff)
	}
}

// TestSeries: a chart is well-formed, and says its figures to those who do not see it.
func TestSeries(t *testing.T) {
	at, one, two := time.Now(), 1.0, 2.0
	points := []point{{at: at.Add(-time.Minute), p50: &one, p99: &two}, {at: at, p50: &one, p99: &one}}
	chart := newSeries("Lateness <of> events", secondsText, at, points,
		curve{"p50", func(p point) *float64 { return p.p50 }}, curve{"p99", func(p point) *float64 { return p.p99 }})
	page, err := render("overview", Page{Title: "Overview", Data: overviewData{All: true, History: []series{chart}}})
	if err != nil {
		t.Fatal(err)
	}
	_, html, _ := strings.Cut(string(page), `<div class="charts">`)
	html, _, _ = strings.Cut(html, "</div>\n</div>\n</section>")
	text := "p50 1.0 s now, 1.0 s to 1.0 s; p99 1.0 s now, 1.0 s to 2.0 s"
	if got := strings.Count(html, text); got != 2 { // to see, and to hear
		t.Errorf("%q is there %d times, want 2:\n%s", text, got, html)
	}
	if !strings.Contains(html, `d="M800.0 50.0h.1L1000.0 50.0"`) || !strings.Contains(html,
		`d="M800.0 0.0h.1L1000.0 50.0"`) {
		t.Errorf("the lines are elsewhere:\n%s", html)
	}
	decoder := xml.NewDecoder(strings.NewReader("<div>" + html + "</div>"))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, html)
		}
	}
}
