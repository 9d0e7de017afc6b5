//go:build held

package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// logged is how many messages the log has on a subject.
func (r *rig) logged(js jetstream.JetStream, subject string) (n uint64) {
	r.t.Helper()
	log, err := js.Stream(r.t.Context(), wire.DefaultPrefix.LogStream())
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := log.Info(r.t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, some := range info.State.Subjects {
		n += some
	}
	return n
}

// js is JetStream of the rig.
func (r *rig) js() jetstream.JetStream {
	r.t.Helper()
	js, err := jetstream.New(connect(r.t, r))
	if err != nil {
		r.t.Fatal(err)
	}
	return js
}

// TestHeldPatchConfig: somebody else changes another property between the read and the write of a change. Both changes
// count; with an If-Match the change is refused, and the other one counts alone.
func TestHeldPatchConfig(t *testing.T) {
	r, n := start(t), 0
	for _, condition := range []bool{false, true} {
		held.Each(t, "cmd/internal/httpapi.patchConfig", held.Write, func(t *testing.T, during func(happen func())) {
			n++
			path := fmt.Sprintf("/collections/orders%d", n)
			var headers []string
			if etag := r.do("PUT", path, `{"defaultTtl":60}`).want(t, 200).Header.Get("Etag"); condition {
				headers = []string{"If-Match", etag}
			}
			happened := false
			during(func() { r.do("PATCH", path, `{"indexingMode":"lazy"}`).want(t, 200); happened = true })
			answer := r.do("PATCH", path, `{"defaultTtl":120}`, headers...)
			status, ttl, mode := 200, `"defaultTtl":120`, `"indexingMode":"lazy"`
			switch {
			case !happened:
				mode = `"indexingMode":"consistent"`
			case condition:
				status, ttl = 412, `"defaultTtl":60`
			}
			answer.want(t, status)
			r.do("GET", path, "").want(t, 200, ttl, mode)
		})
	}
}

// TestHeldDropWhileOthersWrite: a document comes between the questions whether a collection exists, and between these and
// the drop. Either the drop says that there is nothing and the document stays, or both the drop and the document count,
// in the order of the log.
func TestHeldDropWhileOthersWrite(t *testing.T) {
	r, n := start(t), 0
	for _, operation := range []string{"API.exists", "dropCollection"} {
		for _, headers := range [][]string{nil, {"Idempotency-Key", operation}} {
			held.Each(t, "cmd/internal/httpapi."+operation, held.Write, func(t *testing.T, during func(happen func())) {
				n++
				path := fmt.Sprintf("/collections/orders%d", n)
				happened := false
				during(func() { r.do("PUT", path+"/documents/1", `{}`).want(t, 201); happened = true })
				given := slices.Clone(headers)
				if given != nil {
					given[1] += fmt.Sprint(n)
				}
				dropped := r.do("DELETE", path, "", given...).StatusCode
				there := r.do("GET", path+"/documents/1", "").StatusCode == 200
				switch {
				case dropped != 404 && dropped != 204:
					t.Errorf("the drop is answered with %d", dropped)
				case happened && there != (dropped == 404), !happened && dropped != 404:
					t.Errorf("the drop is answered with %d, the document is there: %t, it came: %t", dropped, there, happened)
				}
			})
		}
	}
}

// TestHeldDropWhileOthersConfigure: somebody configures a collection before its drop comes into the log. A drop with an
// If-Match drops no configuration but the one that its client knows.
func TestHeldDropWhileOthersConfigure(t *testing.T) {
	r, n := start(t), 0
	held.Each(t, "cmd/internal/httpapi.dropCollection", held.Write, func(t *testing.T, during func(happen func())) {
		n++
		path := fmt.Sprintf("/collections/orders%d", n)
		etag := r.do("PUT", path, `{"defaultTtl":60}`).want(t, 200).Header.Get("Etag")
		happened := false
		during(func() { r.do("PUT", path, `{"defaultTtl":7}`).want(t, 200); happened = true })
		dropped := r.do("DELETE", path, "", "If-Match", etag)
		if !happened {
			dropped.want(t, 204)
			return
		}
		dropped.want(t, 412)
		r.do("GET", path, "").want(t, 200, `"defaultTtl":7`)
	})
}

// TestHeldDropOfNothing: with a key, a drop of nothing comes into the log, and before it somebody makes the collection.
// The drop drops nothing of it.
func TestHeldDropOfNothing(t *testing.T) {
	r, n := start(t), 0
	held.Each(t, "cmd/internal/httpapi.dropCollection", held.Write, func(t *testing.T, during func(happen func())) {
		n++
		path := fmt.Sprintf("/collections/orders%d", n)
		happened := false
		during(func() {
			r.do("PUT", path, `{"defaultTtl":-1}`).want(t, 200)
			r.do("PUT", path+"/documents/1", `{}`).want(t, 201)
			happened = true
		})
		r.do("DELETE", path, "", "Idempotency-Key", fmt.Sprint("nothing", n)).want(t, 404)
		if happened {
			r.do("GET", path, "").want(t, 200, `"defaultTtl":-1`)
			r.do("GET", path+"/documents/1", "").want(t, 200)
		}
	})
}

// TestHeldImportRepeated: a client leaves between two lines of an import, and repeats it all with the same key. The log
// has each line once.
func TestHeldImportRepeated(t *testing.T) {
	r, n := start(t), 0
	js := r.js()
	const lines = 20
	for _, operation := range []string{"importing.read", "importing.lines"} {
		held.Each(t, "cmd/internal/httpapi."+operation, held.Reconnection, func(t *testing.T, during func(happen func())) {
			n++
			collection := fmt.Sprintf("orders%d", n)
			var input strings.Builder
			for id := range lines {
				fmt.Fprintf(&input, "{\"id\":\"%d\"}\n", id)
			}
			path, key := "/collections/"+collection+"/documents", "import"+collection
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			during(cancel)
			req, err := http.NewRequestWithContext(ctx, "POST", r.base+path, strings.NewReader(input.String()))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", linesType)
			req.Header.Set("Idempotency-Key", key)
			plain := &http.Client{Transport: &http.Transport{}} // the other one reads answers to their end
			defer plain.CloseIdleConnections()
			if resp, err := plain.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			eventually(t, "the import ends", func() bool {
				return strings.Contains(metrics(t, r), `lapse_http_streams{kind="imports"} 0`)
			})
			again := outcomes(t, r.do("POST", path, input.String(), "Content-Type", linesType, "Idempotency-Key", key).
				want(t, 200).body)
			for i, o := range again {
				if o.Line != i+1 || o.Status != 201 && !(o.Status == 202 && o.Duplicate) {
					t.Errorf("line %d: %+v", i+1, o)
				}
			}
			subject := strings.TrimSuffix(wire.DefaultPrefix.Write(wire.Upsert, collection, "x"), "x") + "*"
			if all := r.logged(js, subject); len(again) != lines || all != lines {
				t.Errorf("%d outcomes, and the log has %d messages, want %d", len(again), all, lines)
			}
			r.do("GET", "/collections/"+collection+"/count", "").want(t, 200, fmt.Sprintf(`"live":%d`, lines))
		})
	}
}

// TestHeldSlide: between the read of a document and the touch that renews it, somebody writes another version with a
// deadline of its own, or deletes the document. The touch renews nothing, and brings nothing back.
//
// It fails if the touch has no condition.
func TestHeldSlide(t *testing.T) {
	r, n := start(t), 0
	js := r.js()
	r.do("PUT", "/collections/sessions", `{"defaultTtl":600,"slideOnRead":0.000001}`).want(t, 200)
	at := wire.Time(time.Now().Add(time.Hour).UnixMilli()).String()
	for _, one := range []struct{ operation, query string }{{"Get", ""}, {"Renew", "?renew=true"}} {
		for _, deleted := range []bool{false, true} {
			held.Each(t, "sink/service.Sliding."+one.operation, held.Write, func(t *testing.T, during func(happen func())) {
				n++
				id := fmt.Sprintf("%s-%d", one.operation, n)
				path := "/collections/sessions/documents/" + id
				r.do("PUT", path, `{"n":1}`).want(t, 201)
				stored := time.Now().UnixMilli()
				eventually(t, "the document is some milliseconds old", func() bool { return time.Now().UnixMilli() > stored+5 })
				r.do("PUT", "/collections/sessions/documents/behind", `{}`) // by the clock of the log, too
				happened := false
				during(func() {
					if happened = true; deleted {
						r.do("DELETE", path, "").want(t, 204)
					} else {
						r.do("PUT", path, `{"n":2}`, wire.HeaderExpiresAt, at).want(t, 200)
					}
				})
				r.do("GET", path+one.query, "")
				if !happened {
					return
				}
				touches := wire.DefaultPrefix.Write(wire.Touch, "sessions", id)
				eventually(t, "the touch is in the log", func() bool { return r.logged(js, touches) > 0 })
				r.do("PUT", "/collections/sessions/documents/behind", `{}`) // so it is applied
				page := r.do("GET", "/collections/sessions/documents?prefix="+id, "").want(t, 200).body
				if want := `"expiresAt":"` + at + `"`; deleted == strings.Contains(page, id) ||
					!deleted && !strings.Contains(page, want) {
					t.Errorf("deleted: %t, and the document is %s, want %s", deleted, page, want)
				}
			})
		}
	}
}

// TestHeldChanges: documents are written and deleted between the steps in which a client gets all documents and then the
// changes. What it has in the end is what there is, and each version has come once and in order (G3).
func TestHeldChanges(t *testing.T) {
	r, n := start(t), 0
	for _, operation := range []string{"Hub.Changes", "stream.beginChanges"} {
		held.Each(t, "cmd/internal/live."+operation, held.Write, func(t *testing.T, during func(happen func())) {
			n++
			collection := fmt.Sprintf("orders%d", n)
			path := "/collections/" + collection
			r.do("PUT", path, `{"defaultTtl":-1,"changes":true}`).want(t, 200)
			for id := 1; id <= 3; id++ {
				r.do("PUT", fmt.Sprintf("%s/documents/%d", path, id), `{"n":1}`).want(t, 201)
			}
			during(func() {
				r.do("PUT", path+"/documents/1", `{"n":2}`).want(t, 200)
				r.do("DELETE", path+"/documents/2", "").want(t, 204)
				r.do("PUT", path+"/documents/4", `{"n":1}`).want(t, 201)
			})
			s := r.follow("/changes?collection=" + collection)
			r.do("PUT", path+"/documents/last", `{"n":1}`).want(t, 201)
			has, etags := map[string]string{}, map[string]int{}
			for has["last"] == "" {
				e := s.next()
				var m struct {
					ID       string
					Etag     int `json:",string"`
					Document json.RawMessage
				}
				if err := json.Unmarshal([]byte(e.data), &m); err != nil {
					t.Fatalf("%+v: %v", e, err)
				}
				switch e.name {
				case "stored", "created", "updated":
					if m.Etag <= etags[m.ID] {
						t.Errorf("%+v comes behind version %d", e, etags[m.ID])
					}
					has[m.ID], etags[m.ID] = string(m.Document), m.Etag
				case "deleted":
					if has[m.ID] == "" {
						t.Errorf("%+v comes, and the client does not have the document", e)
					}
					delete(has, m.ID)
				}
			}
			var page wire.ListReply
			if err := json.Unmarshal([]byte(r.do("GET", path+"/documents", "").want(t, 200).body), &page); err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Documents {
				if has[d.ID] != string(d.Document) {
					t.Errorf("the client has %s of document %s, which is %s", has[d.ID], d.ID, d.Document)
				}
			}
			if len(has) != len(page.Documents) {
				t.Errorf("the client has %v, and there are %d documents", has, len(page.Documents))
			}
			s.cancel()
		})
	}
}
