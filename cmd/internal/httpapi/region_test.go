package httpapi_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/client"
)

// regions are a first region and one that follows it.
type regions struct {
	first, follower *rig
	nats            string // of the follower
	link            *proxy.Proxy
}

func startRegions(t *testing.T, set func(o *serve.Options, first *rig)) *regions {
	t.Helper()
	a, b, link := natstest.StartJoined(t)
	r := &regions{nats: b, link: link}
	r.first = start(t, func(o *serve.Options) { o.NATS = a })
	r.follower = start(t, func(o *serve.Options) {
		o.NATS, o.Follow = b, "a"
		set(o, r.first)
	})
	return r
}

// promote makes the follower the first region.
func (r *regions) promote(t *testing.T, drain bool) {
	t.Helper()
	nc, err := nats.Connect(r.nats, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := processor.Promote(t.Context(), nc, "lapse", processor.PromoteOptions{By: "a test",
		Drain: drain}); err != nil {
		t.Fatal(err)
	}
}

// TestWritesGoToTheFirstRegion: with --writes-to, a region that follows another one answers every write with 421 and
// the address there, and reads as ever. After a promotion it takes writes.
func TestWritesGoToTheFirstRegion(t *testing.T) {
	var to string
	r := startRegions(t, func(o *serve.Options, first *rig) {
		to = strings.TrimSuffix(first.base, "/v1")
		o.WritesTo = to
	})
	r.first.do("PUT", "/collections/orders/documents/a", `{"n":1}`).want(t, 201)
	eventually(t, "the follower has the document", func() bool {
		return r.follower.do("GET", "/collections/orders/documents/a", "").StatusCode == 200
	})
	for _, q := range [][]string{
		{"PUT", "/collections/orders/documents/b%2Fc", `{}`},
		{"PATCH", "/collections/orders/documents/a", `{}`},
		{"DELETE", "/collections/orders/documents/a", ""},
		{"POST", "/collections/orders/documents/a/touch", ""},
		{"POST", "/collections/orders/documents", "{\"id\":\"x\",\"document\":{}}\n", "Content-Type", "application/x-ndjson"},
		{"PUT", "/collections/orders", `{"defaultTtl":60}`},
		{"PATCH", "/collections/orders", `{"defaultTtl":60}`},
		{"DELETE", "/collections/orders", ""},
	} {
		a := r.follower.do(q[0], q[1], q[2], q[3:]...).want(t, http.StatusMisdirectedRequest, `"code":"other-region"`,
			`follows the region \"a\"`, to)
		a.header(t, "Location", to+"/v1"+q[1])
		a.header(t, "Content-Type", "application/problem+json")
	}
	r.first.do("GET", "/collections/orders/documents/a", "").want(t, 200, `{"n":1}`)

	if s, err := r.follower.client().Status(t.Context()); err != nil || s.Region == nil || s.Region.Following == nil ||
		s.Region.Following.Domain != "a" || s.Region.Following.AsOf == 0 {
		t.Errorf("the follower's status: %+v, %v", s.Region, err)
	}
	eventually(t, "the first region knows that the other follows it", func() bool {
		s, err := r.first.client().Status(t.Context())
		return err == nil && s.Region != nil && len(s.Region.Followers) == 1 && s.Region.Followers[0].Domain == "b"
	})

	r.promote(t, true)
	began := time.Now()
	for {
		a := r.follower.do("PUT", "/collections/orders/documents/a", `{"n":2}`)
		if a.StatusCode != http.StatusMisdirectedRequest {
			a.want(t, 200)
			break
		}
		if time.Since(began) > 5*time.Second {
			t.Fatalf("5 s after the promotion: %s", a.body)
		}
	}
	t.Logf("the first write after %s", time.Since(began))
	r.first.do("PUT", "/collections/orders/documents/a", `{"n":3}`).want(t, 200) // over the link
	r.follower.do("GET", "/collections/orders/documents/a", "").want(t, 200, `{"n":3}`)
}

// TestWritesWhileTheFirstRegionIsAway: without --writes-to, a region that follows another one passes writes on. While
// the first region does not answer, they are 503, and reads go on, also those that touch what they read.
func TestWritesWhileTheFirstRegionIsAway(t *testing.T) {
	r := startRegions(t, func(*serve.Options, *rig) {})
	r.follower.do("PUT", "/collections/orders", `{"defaultTtl":60,"slideOnRead":true}`).want(t, 200)
	r.follower.do("PUT", "/collections/orders/documents/a", `{"n":1}`).want(t, 201)
	eventually(t, "the follower has the document", func() bool {
		return r.follower.do("GET", "/collections/orders/documents/a", "").StatusCode == 200
	})
	r.link.Down()
	eventually(t, "the link is down", func() bool {
		a := r.follower.do("PUT", "/collections/orders/documents/b", `{}`)
		if a.StatusCode == http.StatusServiceUnavailable {
			a.want(t, 503, `the first region (JetStream domain \"a\") does not answer`, `"code":"unavailable"`)
			return true
		}
		return false
	})
	r.follower.do("DELETE", "/collections/orders", "").want(t, 503,
		`the first region (JetStream domain \"a\") does not answer`)
	r.follower.do("GET", "/collections/orders/documents/a", "").want(t, 200, `{"n":1}`)
}

// TestReadsThatAreTooFarBehind: with --max-staleness, reads are 503 while the link is down, and unavailable to clients
// over NATS.
// Once the region is promoted, they are answered.
func TestReadsThatAreTooFarBehind(t *testing.T) {
	r := startRegions(t, func(o *serve.Options, _ *rig) { o.MaxStaleness = 2 * time.Second })
	r.first.do("PUT", "/collections/orders/documents/a", `{"n":1}`).want(t, 201)
	get := func() answer { return r.follower.do("GET", "/collections/orders/documents/a", "") }
	eventually(t, "the follower has the document", func() bool { return get().StatusCode == 200 })
	r.link.Down()
	eventually(t, "reads are refused", func() bool { return get().StatusCode == 503 })
	get().want(t, 503, `"code":"unavailable"`, "--max-staleness", `follows the region \"a\"`)
	if _, err := r.follower.client().Get(t.Context(), "orders", "a"); !errors.Is(err, client.ErrUnavailable) ||
		errors.Is(err, client.ErrNotFound) {
		t.Errorf("a get over NATS: %v", err)
	}
	r.promote(t, false)
	eventually(t, "reads are answered", func() bool { return get().StatusCode == 200 })
}
