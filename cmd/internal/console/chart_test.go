package console

import (
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestChart(t *testing.T) {
	counts := []int64{0, 1, 2000, 500}
	var buckets []wire.Bucket
	for i, n := range counts {
		buckets = append(buckets, wire.Bucket{From: wire.Time(i * 10), Until: wire.Time(i*10 + 10), Count: n})
	}
	if got := mostOf(buckets, nil, []wire.Bucket{{Count: 7}}); got != 2000 {
		t.Errorf("most is %d", got)
	}
	c := newChart(buckets, 4000)
	if c.Total != 2501 || c.Most != 4000 || c.From != 0 || c.Until != 40 || c.Highest().Count != 2000 {
		t.Errorf("%+v", c)
	}
	end := 0.0
	for i, want := range []float64{0, leastHeight, 50, 12.5} {
		b := c.Bars[i]
		if b.Height != want || b.Y != chartHeight-want || b.X < end || b.X+b.Width > float64(i+1)*chartWidth/4 {
			t.Errorf("bar %d: %+v", i, b)
		}
		end = b.X + b.Width
	}
	if c := newChart(nil, 0); c.Highest() != nil || c.Most != 1 || len(c.Bars) != 0 {
		t.Errorf("of nothing: %+v", c)
	}
}
