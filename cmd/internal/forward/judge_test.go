package forward

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestGiveUpAfter: a message that the receiver calls wrong is tried for minutes, and so is one that it does not take
// while it takes others. Any other one is tried for as long as the user wants: the receiver is down, or busy.
//
// It fails if an outage of the receiver gives messages up, or if one message is tried for a day beside others.
func TestGiveUpAfter(t *testing.T) {
	const day = 24 * time.Hour
	f := &forwarding{opts: Options{GiveUpAfter: day, Patience: patience}}
	for _, c := range []struct {
		status, attempts int
		tried            time.Duration
		others           bool
		want             time.Duration
	}{
		{400, 1, 0, false, patience}, {401, 1, 0, false, patience}, {404, 1, 0, false, patience}, {422, 1, 0, false,
			patience},
		{408, 99, day / 2, true, day}, {425, 99, day / 2, true, day}, {429, 99, day / 2, true, day}, {503, 99, day / 2, true,
			day},
		{500, leastAttempts, patience, true, patience}, {302, leastAttempts, patience, true, patience},
		{500, leastAttempts, patience, false, day}, {500, leastAttempts - 1, patience, true, day}, {500, leastAttempts,
			patience - 1, true, day},
	} {
		if got := f.giveUpAfter(judge(c.status, "", time.Now()), &client.Ordered{}, c.attempts, c.tried,
			c.others); got != c.want {
			t.Errorf("%+v: given up after %s", c, got)
		}
	}
	f.opts.GiveUpAfter = time.Second
	if got := f.giveUpAfter(judge(400, "", time.Now()), &client.Ordered{}, 1, 0, false); got != time.Second {
		t.Errorf("given up after %s", got)
	}
}

// TestMakesRoom: one message is given up so that others come, and not all of them.
func TestMakesRoom(t *testing.T) {
	f := &forwarding{opts: Options{Patience: time.Hour}}
	if !f.makesRoom() || f.makesRoom() {
		t.Error("it gives none up, or all")
	}
}

// TestGone: 410 ends it, and the event is not done.
func TestGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ string, n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(410)
		}
	})
	r.event(t, "1", "1")
	if err := r.run(t); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
	if err := r.run(t); err != nil || len(r.order) != 1 {
		t.Errorf("the next time: %v, %v", r.order, err)
	}
}

// TestVerifiesTLS: a receiver whose certificate is not trusted gets nothing.
func TestVerifiesTLS(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(string, int, http.ResponseWriter) { t.Error("a request has come") })
	r.opts.Authorities, r.opts.GiveUpAfter = nil, time.Nanosecond
	r.event(t, "1", "1")
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	if all := r.letters(t); len(all) != 1 || !strings.Contains(all[0], "certificate") {
		t.Errorf("dead letters %v", all)
	}
}

// TestF1_RetryAfter: a receiver that asks for a pause gets no message before.
func TestF1_RetryAfter(t *testing.T) {
	t.Parallel()
	var asked time.Time
	r := newRig(t, func(_ string, _ int, w http.ResponseWriter) {
		switch {
		case asked.IsZero():
			asked = time.Now()
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(503)
		case time.Since(asked) < 2*time.Second:
			t.Errorf("a request %s after an answer that asks for 2s", time.Since(asked))
		}
	})
	r.opts.Concurrency = 1
	for _, id := range []string{"1", "2", "3", "4"} {
		r.event(t, id, "1")
	}
	if err := r.run(t); err != nil || len(r.order) != 4 {
		t.Errorf("%v, %v", r.order, err)
	}
}

// TestDefaults: what the options do not say has a default, so attempts have pauses between them.
func TestDefaults(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, err := open(t.Context(), r.c, wire.DefaultPrefix, Options{URL: r.URL, Messages: r.opts.Messages})
	if err != nil {
		t.Fatal(err)
	}
	if o := f.opts; o.Concurrency != 16 || o.GiveUpAfter != 24*time.Hour || o.Patience != 5*time.Minute ||
		o.LongestWait != time.Minute || o.Timeout != 15*time.Second {
		t.Errorf("the defaults are %+v", o)
	}
}

// figure is the value of a metric without labels.
func figure(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if one := family.GetMetric()[0]; family.GetName() == name {
			return one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
