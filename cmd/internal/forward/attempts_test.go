package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestAttempts: what comes of an attempt, and what it is counted as. An error does not tell the URL, which may have a
// secret.
func TestAttempts(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.UserAgent() != "lapse" {
			t.Errorf("%s by %q", r.Method, r.UserAgent())
		}
		w.Header().Set("Retry-After", r.URL.Query().Get("retry"))
		w.WriteHeader(map[string]int{"/taken": 204, "/busy": 503, "/large": 413, "/wrong": 422}[r.URL.Path])
	}))
	defer receiver.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, c := range []struct {
		url, result, why             string
		dead, halting, refused, busy bool
		pause                        time.Duration
	}{
		{url: receiver.URL + "/taken", result: "204"},
		{url: receiver.URL + "/busy?retry=7", result: "503", why: "503", halting: true, busy: true, pause: 7 * time.Second},
		{url: receiver.URL + "/large", result: "413", why: "413", dead: true},
		{url: receiver.URL + "/wrong", result: "422", why: "422", refused: true},
		{url: closed.URL + "/token", result: "unreachable", why: "refused"},
		{url: ":", result: "invalid", why: "scheme", dead: true},
	} {
		registry := prometheus.NewRegistry()
		f := &forwarding{opts: Options{URL: c.url, Secrets: secrets(t, secret)}, http: newClient(nil, 1, limit),
			metrics: newMetrics(registry)}
		v := f.attempt(t.Context(), expiry)
		f.http.CloseIdleConnections()
		if (v.why != nil) != (c.why != "") || v.why != nil && !strings.Contains(v.why.Error(), c.why) || v.dead != c.dead ||
			v.halting != c.halting || v.refused != c.refused || v.busy != c.busy || v.pause != c.pause {
			t.Errorf("%s: %+v", c.url, v)
		}
		if v.why != nil && strings.Contains(v.why.Error(), "/token") {
			t.Errorf("%s: the error %q tells the URL", c.url, v.why)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			switch one := family.GetMetric()[0]; family.GetName() {
			case "lapse_forward_attempts_total":
				if label := one.GetLabel()[0].GetValue(); label != c.result || one.GetCounter().GetValue() != 1 {
					t.Errorf("%s: counted as %q", c.url, label)
				}
			case "lapse_forward_attempt_seconds":
				if n := one.GetHistogram().GetSampleCount(); n != 1 {
					t.Errorf("%s: %d attempts have a duration", c.url, n)
				}
			}
		}
	}
}

// noLetter is a stream without a dead letter.
type noLetter struct{ jetstream.Stream }

func (noLetter) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return nil, jetstream.ErrMsgNotFound
}

// stored is called when a dead letter is stored.
type stored struct {
	jetstream.JetStream
	call func()
}

func (s stored) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	s.call()
	return nil, nil
}

// posts is a receiver without a network.
type posts func() (status int, retryAfter string)

// RoundTrip implements [http.RoundTripper].
func (p posts) RoundTrip(*http.Request) (*http.Response, error) {
	status, retryAfter := p()
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: http.NoBody}, nil
}

// TestPauses: the first pause is a second and each further one twice as long, up to the longest, and up to a quarter
// shorter. The receiver may ask for a longer one. A message that the receiver refuses is given up when the next attempt
// would be later than the options allow, and not before.
func TestPauses(t *testing.T) {
	for name, c := range map[string]struct {
		status        int
		retryAfter    string
		longest       time.Duration
		giveUp        time.Duration
		pauses, lasts time.Duration // of the first six together; until it is given up
	}{
		"doubled":            {status: 500, longest: time.Hour, giveUp: 24 * time.Hour, pauses: 63 * time.Second},
		"up to the longest":  {status: 500, longest: 4 * time.Second, giveUp: 24 * time.Hour, pauses: 19 * time.Second},
		"never a second":     {status: 500, longest: 100 * time.Millisecond, giveUp: time.Hour, pauses: 600 * time.Millisecond},
		"as the receiver":    {status: 500, retryAfter: "60", longest: time.Second, giveUp: time.Hour, pauses: 6 * time.Minute},
		"refused":            {status: 400, longest: time.Second, giveUp: time.Hour, lasts: time.Minute},
		"refused, no longer": {status: 400, longest: time.Second, giveUp: 10 * time.Second, lasts: 10 * time.Second},
		"fails for too long": {status: 500, longest: time.Minute, giveUp: time.Hour, lasts: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, attempts, last, gaveUp := time.Now(), 0, time.Duration(0), time.Duration(0)
				receiver := posts(func() (int, string) {
					if last = time.Since(began); attempts == 6 && c.lasts == 0 {
						return http.StatusNoContent, ""
					}
					attempts++
					return c.status, c.retryAfter
				})
				letters := stored{call: func() { gaveUp = time.Since(began) }}
				f := &forwarding{http: &http.Client{Transport: receiver}, metrics: newMetrics(nil), slots: make(chan struct{}, 1),
					dead: &deadLetters{letters, noLetter{}, wire.DefaultPrefix, "billing", exchangeWithin},
					opts: Options{URL: "https://example.com", LongestWait: c.longest, GiveUpAfter: c.giveUp, Patience: time.Minute}}
				if err := f.deliver(t.Context(), &client.Ordered{}); err != nil {
					t.Fatal(err)
				}
				if c.lasts == 0 && (last > c.pauses || last < c.pauses*3/4 || gaveUp > 0) {
					t.Errorf("six pauses take %s, want %s or a quarter less; given up after %s", last, c.pauses, gaveUp)
				}
				if c.lasts > 0 && (gaveUp > c.lasts || gaveUp < c.lasts-c.longest || gaveUp == 0) {
					t.Errorf("given up after %s, want %s, or a pause less", gaveUp, c.lasts)
				}
				if len(f.slots) > 0 {
					t.Error("an attempt that has ended keeps its slot")
				}
			})
		})
	}
}

// TestResendFails: dead letters are left, and the user gets the reason, if they cannot be posted at all.
func TestResendFails(t *testing.T) {
	t.Parallel()
	status := http.StatusRequestEntityTooLarge
	r := newRig(t, func(_ string, _ int, w http.ResponseWriter) { w.WriteHeader(status) })
	r.event(t, "a", "1")
	r.event(t, "b", "1")
	if err := r.run(t); err != nil {
		t.Fatal(err)
	}
	status = http.StatusGone
	sent, left, err := Resend(t.Context(), r.c, wire.DefaultPrefix, r.opts)
	if sent != 0 || !errors.Is(err, ErrGone) || r.got["lapse/17/orders/a/1"]+r.got["lapse/17/orders/b/1"] != 3 {
		t.Errorf("the receiver is gone: %d sent, %d left, %v", sent, left, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if sent, _, err := Resend(ended, r.c, wire.DefaultPrefix, r.opts); sent != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("it was ended: %d sent, %v", sent, err)
	}
	r.opts.URL = "http://example.com"
	if _, _, err := Resend(t.Context(), r.c, wire.DefaultPrefix, r.opts); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a URL that is not valid: %v", err)
	}
	if err := r.run(t); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a URL that is not valid: %v", err)
	}
	if all := r.letters(t); len(all) != 2 {
		t.Errorf("the dead letters are %v", all)
	}
}

// TestRunClosesItsConnections: a call of Run that has ended leaves no connection to the receiver.
func TestRunClosesItsConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	closed := make(chan struct{})
	closes := sync.OnceFunc(func() { close(closed) })
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	receiver.Config.ConnState = func(_ net.Conn, is http.ConnState) {
		if is == http.StateClosed {
			closes()
		}
	}
	receiver.StartTLS()
	defer receiver.Close()
	r.opts.URL = receiver.URL
	r.opts.Authorities = receiver.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	r.event(t, "a", "1")
	if err := Run(t.Context(), r.c, wire.DefaultPrefix, r.opts); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed:
	case <-time.After(limit): // the client closes an idle one after 90 s
		t.Error("the connection stays open")
	}
}
