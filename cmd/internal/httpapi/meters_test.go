package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// series are the metrics that have labels: the value of each.
func (r *rig) series() map[string]string {
	r.t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(metrics(r.t, r)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
			all[name+"}"] = value
		}
	}
	return all
}

// TestMetrics: the metrics count requests, reads over both ways and rejections, each by its code.
//
// It fails if a client can make series, by names, paths or methods of its own.
func TestMetrics(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":3600}`).want(t, 200)
	r.do("PUT", "/collections/orders/documents/1", `{}`).want(t, 201)
	etag := r.do("GET", "/collections/orders/documents/1", "").want(t, 200).Header.Get("Etag")
	r.do("GET", "/collections/orders/documents/1", "", "If-None-Match", etag).want(t, 304)
	r.do("GET", "/collections/orders/documents/none", "").want(t, 404)
	r.do("GET", "/collections/orders/documents?limit=0", "").want(t, 400)
	r.do("GET", "/collections/orders/documents", "").want(t, 200)
	r.do("GET", "/collections/orders/count", "").want(t, 200)
	r.do("GET", "/collections/orders/forecast", "").want(t, 200)
	r.do("GET", "/collections/orders", "").want(t, 200)
	r.do("GET", "/collections", "").want(t, 200)
	r.do("POST", "/collections/orders/documents", "{\"id\":\"2\"}\n{\"id\":\"3\",\"ttl\":0}\n", "Content-Type",
		linesType).want(t, 200)
	r.do("PUT", "/collections/orders/documents/1", `{"ttl":0}`).want(t, 400)
	r.do("DELETE", "/collections/orders/documents/none", "").want(t, 404)
	r.do("PUT", "/collections/orders/documents/1", `{}`, "If-None-Match", "*").want(t, 412) // 409 in the log
	r.do("PUT", "/collections/orders/documents/1", `{}`, "If-Match", `"999"`).want(t, 412)

	nc, err := nats.Connect(r.nats, nats.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{
		wire.DefaultPrefix.ReadGet("orders", "1"), wire.DefaultPrefix.ReadGet("orders", "none"),
		wire.DefaultPrefix.Read("count", "orders"),
	} {
		if _, err := nc.Request(subject, nil, limit); err != nil {
			t.Fatal(subject, err)
		}
	}
	large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", int(nc.MaxPayload())-4000))
	if _, err := nc.Request(wire.DefaultPrefix.Write(wire.Upsert, "orders", "1"), []byte(large), limit); err != nil {
		t.Fatal(err)
	}

	following := r.follow("/events")
	eventually(t, "a stream is under way", func() bool { return r.series()[`lapse_http_streams{kind="events"}`] == "1" })
	following.cancel()

	want := map[string]string{
		`lapse_http_streams{kind="events"}`: "0", `lapse_http_streams_ended_total{reason="left"}`: "1",
		`lapse_http_requests_total{code="200",method="GET",route="/v1/events"}`:                                       "1",
		`lapse_http_requests_total{code="200",method="GET",route="/v1/collections/{collection}/documents/{id}"}`:      "1",
		`lapse_http_requests_total{code="304",method="GET",route="/v1/collections/{collection}/documents/{id}"}`:      "1",
		`lapse_http_requests_total{code="404",method="GET",route="/v1/collections/{collection}/documents/{id}"}`:      "1",
		`lapse_http_requests_total{code="201",method="PUT",route="/v1/collections/{collection}/documents/{id}"}`:      "1",
		`lapse_http_requests_total{code="400",method="PUT",route="/v1/collections/{collection}/documents/{id}"}`:      "1",
		`lapse_http_requests_total{code="412",method="PUT",route="/v1/collections/{collection}/documents/{id}"}`:      "2",
		`lapse_http_requests_total{code="200",method="POST",route="/v1/collections/{collection}/documents"}`:          "1",
		`lapse_http_request_duration_seconds_count{method="GET",route="/v1/collections/{collection}/documents/{id}"}`: "3",
		`lapse_http_import_lines_total{code="201"}`:                                                                   "1",
		`lapse_http_import_lines_total{code="400"}`:                                                                   "1",
		`lapse_reads_total{code="200",read="get",via="http"}`:                                                         "2",
		`lapse_reads_total{code="404",read="get",via="http"}`:                                                         "1",
		`lapse_reads_total{code="400",read="list",via="http"}`:                                                        "1",
		`lapse_reads_total{code="200",read="list",via="http"}`:                                                        "1",
		`lapse_reads_total{code="200",read="count",via="http"}`:                                                       "1",
		`lapse_reads_total{code="200",read="forecast",via="http"}`:                                                    "1",
		`lapse_reads_total{code="200",read="config",via="http"}`:                                                      "1",
		`lapse_reads_total{code="200",read="collections",via="http"}`:                                                 "1",
		`lapse_reads_total{code="200",read="get",via="nats"}`:                                                         "1",
		`lapse_reads_total{code="404",read="get",via="nats"}`:                                                         "1",
		`lapse_reads_total{code="200",read="count",via="nats"}`:                                                       "1",
		`lapse_read_duration_seconds_count{read="get"}`:                                                               "2",
		`lapse_messages_rejected_total{code="400"}`:                                                                   "2",
		`lapse_messages_rejected_total{code="404"}`:                                                                   "1",
		`lapse_messages_rejected_total{code="409"}`:                                                                   "1",
		`lapse_messages_rejected_total{code="412"}`:                                                                   "1",
		`lapse_messages_rejected_total{code="413"}`:                                                                   "1",
	}
	wrong := func() (all []string) {
		got := r.series()
		for name, value := range want {
			if got[name] != value {
				all = append(all, fmt.Sprintf("%s %s, want %s", name, got[name], value))
			}
		}
		return all
	}
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(wrong(), "\n"))
		}
	}()
	eventually(t, "the metrics count everything", func() bool { return len(wrong()) == 0 })

	// Whatever clients send, the series are the same. A first round makes those of these answers.
	count := func() (n int) {
		for name := range r.series() {
			if ofTraffic.MatchString(name) {
				n++
			}
		}
		return n
	}
	var before int
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for round := range 3 {
		for n := range 5 {
			name := fmt.Sprintf("c-%d-%d", round, n)
			r.do("GET", "/collections/"+name+"/documents/"+name, "")
			r.do("PUT", "/collections/"+name+"/documents/1", `{"ttl":0}`)
			for _, request := range [][2]string{{"M" + name, "/collections"}, {"GET", "/" + name}, {"M" + name, "/" + name}} {
				req, err := http.NewRequestWithContext(t.Context(), request[0], r.base+request[1], nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := web.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			if _, err := nc.Request(wire.DefaultPrefix.Read("get", name+"."+name), nil, limit); err != nil {
				t.Fatal(err)
			}
		}
		if round == 0 {
			before = count()
		}
	}
	if after := count(); after != before {
		t.Errorf("%d series became %d by what clients sent", before, after)
	}
}

var ofTraffic = regexp.MustCompile(`^lapse_(http|read|messages)`)
