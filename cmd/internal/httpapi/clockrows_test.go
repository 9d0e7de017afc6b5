package httpapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// outcome is the body of an answer to a write.
func (a answer) outcome(t *testing.T) (o wire.Outcome) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return o
}

// TestClockRows: what the headers of the clock do over HTTP, row by row of the contract, where TTL is on
// and where it is off.
//
// It fails if an instant that cannot count is taken, if a kept clock begins anew or ends before its
// write, or if TTL that is off interprets a deadline or forgets it.
func TestClockRows(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/c", `{"defaultTtl":3600}`).want(t, 200)
	doc := func(id string) string { return "/collections/c/documents/" + id }
	in := func(d time.Duration) string { return wire.Time(time.Now().Add(d).UnixMilli()).String() }
	const at = "Lapse-Expires-At"

	r.do("PUT", doc("a"), `{}`, at, in(-time.Second)).want(t, 400, "use an instant after the stamp")
	r.do("PUT", doc("a"), `{}`, at, in(2147483647*time.Second+time.Minute)).want(t, 400, "at most 2147483647 s after it")
	r.do("PUT", doc("a"), `{"ttl":60}`, at, in(time.Hour)).want(t, 400, "the body has ttl 60")
	hour := in(time.Hour)
	r.do("PUT", doc("a"), `{"ttl":null}`, at, hour).want(t, 201, `"expiresAt":"`+hour+`"`)

	// A touch renews _ts alone; a patch whose body names ttl puts that in the deadline's place.
	before := r.do("GET", doc("a"), "").want(t, 200)
	touched := r.do("POST", doc("a")+"/touch", "").want(t, 200, `"expiresAt":"`+hour+`"`).outcome(t)
	if touched.Etag.String() == before.Header.Get("Etag") || touched.Ts.String() == before.Header.Get("Lapse-Ts") {
		t.Errorf("a touch of %v leaves %+v", before.Header, touched)
	}
	for _, body := range []string{`{"ttl":null}`, `{"ttl":600}`} {
		r.do("PUT", doc("a"), `{}`, at, hour).want(t, 200)
		o := r.do("PATCH", doc("a"), body).want(t, 200).outcome(t)
		if ttl := map[string]wire.Time{`{"ttl":null}`: 3600_000, `{"ttl":600}`: 600_000}[body]; *o.ExpiresAt != o.Ts+ttl {
			t.Errorf("after %s: %+v", body, o)
		}
	}

	// A kept clock counts from where it began: where there is none, now.
	first := r.do("PUT", doc("k"), `{}`, "Lapse-Clock", "keep").want(t, 201).outcome(t)
	if *first.ExpiresAt != first.Ts+3600_000 {
		t.Errorf("nothing to keep: %+v", first)
	}
	if o := r.do("PATCH", doc("k"), `{"ttl":600}`, "Lapse-Clock", "keep").want(t,
		200).outcome(t); *o.ExpiresAt != first.Ts+600_000 {
		t.Errorf("a kept clock with a ttl: %+v, begun at %s", o, first.Ts)
	}
	eventually(t, "a second passes", func() bool { return time.Now().UnixMilli() > int64(first.Ts)+1000 })
	out := r.do("PUT", doc("k"), `{"ttl":1}`, "Lapse-Clock", "keep").want(t, 200).outcome(t)
	if *out.ExpiresAt != out.Ts {
		t.Errorf("a clock that has run out: %+v, begun at %s", out, first.Ts)
	}
	r.do("GET", doc("k"), "").want(t, 404)

	// A forecast counts what does not keep to limits: of a and k, a has a ttl of 600, and k has expired.
	r.do("GET", "/collections/c/forecast?minTtl=601&maxTtl=7200", "").want(t, 200, `"outside":1`)
	r.do("GET", "/collections/c/forecast?minTtl=600", "").want(t, 200, `"outside":0`)
	r.do("GET", "/collections/c/forecast?maxTtl=0", "").want(t, 400, "maxTtl")

	// While TTL is off, both are stored and not interpreted; later they count.
	r.do("PUT", "/collections/off", `{}`).want(t, 200)
	off := func(id string) string { return "/collections/off/documents/" + id }
	r.do("PUT", off("past"), `{}`, at, in(-time.Second)).want(t, 201, `"warning":`).header(t, at, "")
	r.do("PUT", off("hour"), `{}`, at, hour).want(t, 201, `"warning":`).header(t, at, "")
	began := r.do("PUT", off("kept"), `{"ttl":600}`).want(t, 201).outcome(t)
	r.do("PATCH", off("kept"), `{"a":1}`, "Lapse-Clock", "keep").want(t, 200).header(t, at, "")
	r.do("PUT", "/collections/off", `{"defaultTtl":-1}`).want(t, 200)
	r.do("GET", off("past"), "").want(t, 200).header(t, at, "")
	r.do("GET", off("hour"), "").want(t, 200).header(t, at, hour)
	r.do("GET", off("kept"), "").want(t, 200).header(t, at, (began.Ts + 600_000).String())
}
