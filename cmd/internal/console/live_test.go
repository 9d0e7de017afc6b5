package console_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// wait waits until documents of a collection that were just written are older than a second.
func wait(t testing.TB, r *rig, collection string) {
	t.Helper()
	page, err := r.List(t.Context(), collection, wireAll)
	if err != nil {
		t.Fatal(err)
	}
	newest := time.Time{}
	for _, d := range page.Documents {
		if at := time.UnixMilli(int64(d.Ts)); at.After(newest) {
			newest = at
		}
	}
	harness.At(t, newest.Add(time.Second))
}

// expire lets documents expire at once, and waits until their events are shown.
func (r *rig) expire(b *browser, collection string, documents int) *page {
	r.t.Helper()
	r.configure(collection, `{"defaultTtl":-1}`)
	for i := range documents {
		r.put(collection, fmt.Sprintf("e%d", i), fmt.Sprintf(`{"ttl":1,"n":%d}`, i))
	}
	var p *page
	harness.Until(r.t, harness.Limit, "the events are shown", func(context.Context) error {
		p = b.get("/console/live?collection=" + collection).want(200)
		if got := len(p.sequences()); got != documents {
			return fmt.Errorf("%d events", got)
		}
		return nil
	})
	return p
}

// sequences are those of the messages that a page shows, from the top.
func (p *page) sequences() (all []uint64) {
	for _, n := range p.all {
		if text := n.attrs["data-seq"]; text != "" {
			seq, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				p.t.Error(err)
			}
			all = append(all, seq)
		}
	}
	return all
}

// attribute is an attribute of the element of an id.
func (p *page) attribute(id, name string) string {
	for _, n := range p.all {
		if n.attrs["id"] == id {
			return n.attrs[name]
		}
	}
	return ""
}

func testLive(t *testing.T, r *rig) {
	b := r.browse(t)
	p := r.expire(b, "brief", 3).want(200, "Expired documents of brief", `{"ttl":1,"n":2}`)
	sequences := p.sequences()
	if !slices.IsSortedFunc(sequences, func(a, b uint64) int { return int(b) - int(a) }) {
		t.Errorf("the newest is not first: %v", sequences)
	}
	b.get("/console/live").want(200, "brief", "e0", "e2", "This page needs JavaScript")
	b.get("/console/live?collection=other").want(200, "Nothing yet.")
	b.get("/console/live?collection=brief&ids=e1").want(200, "ids that begin with e1", `"n":1`).without(`&#34;n&#34;:2`)
	b.get("/console/live?collection=no+good").want(400, "contains")
	r.put("brief", "bad", `{"ttl":0}`)
	r.put("other", "bad", `[1]`)
	b.get("/console/live?kind=rejections").want(200, "ttl 0 is not valid", "send a JSON object",
		"lapse.write.upsert.brief.bad", "400")
	b.get("/console/live?kind=rejections&collection=brief").want(200, "ttl 0 is not valid").without("send a JSON object")

	r.warned(b)

	one := b.get(p.hrefs(fmt.Sprint(sequences[0]))[0]).want(200, "Expired: e", "Its last version", "TTL that counted 1 s")
	if got := one.element("body"); !strings.Contains(got, `"ttl": 1`) {
		t.Errorf("the event has %q", got)
	}
	b.get(one.hrefs("The document with this id now")[0]).want(404, "This document is not there")
	rejected := b.get("/console/live?kind=rejections&collection=brief")
	b.get(rejected.hrefs(fmt.Sprint(rejected.sequences()[0]))[0]).want(200, "400: ttl 0 is not valid",
		"lapse.write.upsert.brief.bad", `{"ttl":0}`)
	for _, none := range []string{"0", "999999999", "x", "-1", "18446744073709551616"} {
		b.get("/console/live/messages/" + none).want(404)
	}

	// The stream goes on behind what the page has, and behind what one has seen before a pause.
	follow := func(path string, headers ...string) []string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", r.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := b.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
			resp.Header.Get("Content-Security-Policy") != policy {
			t.Fatalf("%s: %s %v", path, resp.Status, resp.Header)
		}
		var ids []string
		lines := bufio.NewScanner(resp.Body)
		for len(ids) < 2 && lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids = append(ids, id)
			}
		}
		return ids
	}
	newest, middle, oldest := fmt.Sprint(sequences[0]), fmt.Sprint(sequences[1]), fmt.Sprint(sequences[2])
	warnings := b.get("/console/live?kind=warnings&collection=brief")
	r.warn("w2")
	if got := follow(warnings.attribute("messages", "data-stream") + "&after=1"); len(got) != 2 ||
		got[0] != fmt.Sprint(warnings.sequences()[0]) {
		t.Errorf("the stream of warnings: %v", got)
	}
	stream := p.attribute("messages", "data-stream")
	if got := follow(stream + "&after=" + oldest); !slices.Equal(got, []string{middle, newest}) {
		t.Errorf("after %s: %v", oldest, got)
	}
	// What the browser has got by itself counts more.
	r.expireMore("brief")
	got := follow(stream+"&after="+oldest, "Last-Event-ID", middle)
	if len(got) != 2 || got[0] != newest {
		t.Errorf("after a reconnect: %v", got)
	}
	if after := p.attribute("messages", "data-after"); after < newest {
		t.Errorf("the page goes on behind %s, and has %s", after, newest)
	}
	b.do("GET", "/console/live/stream?collection=no+good", nil).want(400)
}

// warned checks that warnings are shown beside the events, and are told apart.
func (r *rig) warned(b *browser) {
	r.t.Helper()
	r.warn("w1")
	p := b.get("/console/live?kind=warnings&collection=brief").want(200, "Warnings of documents that will expire of "+
		"brief", "w1", "5 s", "2026-01-31 12:00:25", "2026-01-31 12:00:30").without("e0")
	if stream := p.attribute("messages", "data-stream"); !strings.Contains(stream, "kind=warnings") ||
		len(p.sequences()) != 1 {
		r.t.Errorf("its stream is %s, and it shows %v", stream, p.sequences())
	}
	b.get("/console/live?kind=warnings&collection=other").want(200, "Nothing yet.")
	b.get("/console/live?collection=brief").want(200, "Expired documents of brief").without("w1")
	b.get(p.hrefs(fmt.Sprint(p.sequences()[0]))[0]).want(200, "Expiring: w1", "Expires at", "Warned before",
		"TTL that counts 90 s", "The version that will expire")
}

// warn publishes a warning of collection brief.
func (r *rig) warn(id string) {
	r.t.Helper()
	e := wire.Expiring{ID: id, Collection: "brief", Document: []byte(`{"n":7}`), Etag: 7, Ts: 1769860800000, TTL: 90,
		ExpiresAt: 1769860830000, Before: 5}
	if err := harness.Warn(r.t.Context(), r.Conn(), e, ""); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) expireMore(collection string) {
	r.t.Helper()
	r.put(collection, "more", `{"ttl":1}`)
}

// TestPermitted: the pages need nothing of NATS that deploy/ does not permit to lapse.
func TestPermitted(t *testing.T) {
	server := harness.StartNATS(t, harness.NATSOptions{}) // it fails the test if it denies lapse anything
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(harness.LapsePassword), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *serve.Options) {
		o.NATS, o.NATSLogin = server.URL(), credentials.NATS{User: "lapse", PasswordFile: password}
	})
	r.put("orders", "bad", `{"id":"other"}`)
	b := r.browse(t)
	b.get("/").want(200, "Ready")
	b.get("/console/system").want(200, "Shards", "(this one)").without("cannot be read")
	p := b.get("/console/live?kind=rejections&collection=orders").want(200, "lapse.write.upsert.orders.bad")
	b.get(p.hrefs(fmt.Sprint(p.sequences()[0]))[0]).want(200, "Rejected message")
}
