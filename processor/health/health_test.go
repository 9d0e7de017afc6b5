package health

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// logged returns the lines that a board logs, without their times.
func logged(t *testing.T) (*Board, func() []string) {
	t.Helper()
	var b bytes.Buffer
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	board := New(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: withoutTime})))
	return board, func() []string {
		defer b.Reset()
		return slices.Collect(strings.Lines(b.String()))
	}
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s it logged %q, want %q", what, got, want)
	}
}

// told is where the runbook tells what to do about a problem, without its name.
const told = " runbook=https://github.com/seed18712806/lapse/blob/main/deploy/docs/runbook.md#problem-"

// It fails if a problem is logged at each Set, or a changed reason at once or never.
func TestAProblemIsLoggedWhenItBeginsChangesAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lines := logged(t)
		b.Set(Problem{Name: "disk"}, nil)
		expect(t, "without a problem", lines())
		b.Set(Problem{Name: "disk"}, errors.New("full"))
		b.Set(Problem{Name: "disk"}, errors.New("full"))
		expect(t, "at the beginning", lines(),
			"level=WARN msg=\"there is a problem\" problem=disk reason=full"+told+"disk\n")
		time.Sleep(repeatAfter)
		b.Set(Problem{Name: "disk"}, errors.New("gone"))
		expect(t, "at a change after 30 s", lines())
		time.Sleep(time.Nanosecond)
		b.Set(Problem{Name: "disk"}, errors.New("gone"))
		expect(t, "at a change later", lines(),
			"level=WARN msg=\"there is a problem\" problem=disk reason=gone"+told+"disk\n")
		time.Sleep(time.Hour)
		b.Set(Problem{Name: "disk"}, errors.New("gone"))
		expect(t, "without a change", lines())
		b.Set(Problem{Name: "disk"}, nil)
		b.Set(Problem{Name: "disk"}, nil)
		expect(t, "at the end", lines(), "level=INFO msg=\"a problem is over\" problem=disk\n")
	})
}

func TestErrHasAllProblemsInOrder(t *testing.T) {
	b, lines := logged(t)
	if err := b.Err(); err != nil {
		t.Errorf("without a problem: %v", err)
	}
	reason := errors.New("full")
	b.Set(Problem{Name: "redis"}, errors.Join(errors.New("away"), errors.New("again")))
	b.Set(Problem{Name: "disk"}, reason)
	err := b.Err()
	if want := "disk: full\nredis: away; again"; err == nil || err.Error() != want || !errors.Is(err, reason) {
		t.Errorf("%v, want %s", err, want)
	}
	if got := lines()[0]; !strings.Contains(got, `reason="away; again"`) {
		t.Errorf("it logged %s", got)
	}
	b.Forget(Problem{Name: "redis"}, Problem{Name: "disk"}, Problem{Name: "never"})
	if err := b.Err(); err != nil {
		t.Errorf("after Forget: %v", err)
	}
	expect(t, "at Forget", lines())
}

// A name is in the metric from its first check on: 0 before and after a problem, so that an
// alert sees it begin and end.
func TestMetric(t *testing.T) {
	b, _ := logged(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(b); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		reason error
		want   float64
	}{{nil, 0}, {errors.New("full"), 1}, {nil, 0}} {
		b.Set(Problem{Name: "disk"}, step.reason)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != 1 || families[0].GetName() != "lapse_problem" || len(families[0].GetMetric()) != 1 {
			t.Fatalf("gathered %v", families)
		}
		if got := families[0].GetMetric()[0].GetGauge().GetValue(); got != step.want {
			t.Errorf("with the reason %v it is %v, want %v", step.reason, got, step.want)
		}
	}
}

// It fails if the problem of a shard is not one of the process; if a shard has the problems of
// another; or if the metric has a label for each shard, which no alert knows.
func TestBoardsOfShards(t *testing.T) {
	b, lines := logged(t)
	first, second := b.Of(0), b.Of(1)
	b.Set(Problem{Name: "disk"}, errors.New("full"))
	first.Set(Problem{Name: "overdue"}, errors.New("late"))
	second.Set(Problem{Name: "overdue"}, errors.New("later"))
	expect(t, "at the beginning", lines()[1:],
		"level=WARN msg=\"there is a problem\" problem=\"shard 0: overdue\" reason=late"+told+"overdue\n",
		"level=WARN msg=\"there is a problem\" problem=\"shard 1: overdue\" reason=later"+told+"overdue\n")
	if got := b.Err().Error(); got != "disk: full\nshard 0: overdue: late\nshard 1: overdue: later" {
		t.Errorf("the process: %s", got)
	}
	if got := second.Err().Error(); got != "shard 1: overdue: later" {
		t.Errorf("the shard: %s", got)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(b)
	for shard := range 2 {
		board := b.Of(shard)
		if err := prometheus.WrapRegistererWith(prometheus.Labels{"shard": strconv.Itoa(shard)},
			metrics).Register(board); err != nil {
			t.Fatal(err)
		}
	}
	value := func() float64 {
		families, err := metrics.Gather()
		if err != nil || len(families) != 1 || len(families[0].Metric) != 2 {
			t.Fatalf("%v, %v", families, err)
		}
		return families[0].Metric[1].GetGauge().GetValue()
	}
	first.Forget(Problem{Name: "overdue"})
	if got := value(); got != 1 {
		t.Errorf("while one shard has the problem: %v", got)
	}
	second.Set(Problem{Name: "overdue"}, nil)
	if got := value(); got != 0 || second.Err() != nil || b.Err() == nil {
		t.Errorf("after both: %v, %v, %v", got, second.Err(), b.Err())
	}
}

// It fails if a problem that concerns a whole server is repeated for each shard, or if a line
// hides what is particular to one.
func TestShardsWithTheSameProblemShareItsLine(t *testing.T) {
	b, _ := logged(t)
	b.Set(Problem{Name: "disk"}, errors.New("full"))
	for shard := range 64 {
		b.Of(shard).Set(Problem{Name: "NATS", Advice: "Make it reachable."}, errors.New("there is no connection"))
	}
	for _, shard := range []int{2, 3, 4, 9, 10, 12} {
		b.Of(shard).Set(Problem{Name: "Redis"}, fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:6379: i/o timeout", 50_000+shard))
	}
	b.Of(5).Set(Problem{Name: "Redis"}, errors.New("refused"))
	b.Of(7).Set(Problem{Name: "overdue"}, errors.New("there is no connection"))
	want := `disk: full
shards 0 to 63: NATS: there is no connection
shards 2 to 4, 9, 10, 12: Redis: read tcp 10.0.0.1:50002->10.0.0.2:6379: i/o timeout
shard 5: Redis: refused
shard 7: overdue: there is no connection`
	if got := b.Err().Error(); got != want {
		t.Errorf("%s", got)
	}
	if got := b.Problems()[1]; got.Name != "NATS" || got.Advice != "Make it reachable." ||
		got.Reason.Error() != "there is no connection" || len(got.Shards) != 64 {
		t.Errorf("as data: %+v", got)
	}
	if got := b.Of(9).Err().Error(); !strings.HasPrefix(got, "shard 9: NATS: there is no connection\nshard 9: Redis: "+
		"read tcp 10.0.0.1:50009->") {
		t.Errorf("a shard: %s", got)
	}
}
