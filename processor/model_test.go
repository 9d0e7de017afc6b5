package processor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// model is what lapse ought to do with the histories that these tests make: maps,
// no partitions, no index, no batches, and every document looked at whenever time
// moves. It knows flat objects without white space, whose ttl is valid.
type model struct {
	collections map[string]*modelCollection
	said        map[string][]string // per subject, in order
	rejected    int
}

type modelCollection struct {
	ttl     int64 // 0 off, -1 on without a default, else seconds
	noIndex bool
	docs    map[string]*modelDoc
}

type modelDoc struct {
	ts, etag int64
	body     string
}

// fold folds the stored log.
func fold(log []stored) *model {
	m := &model{collections: map[string]*modelCollection{}, said: map[string][]string{}}
	for _, s := range log {
		at := s.at.UnixMilli()
		m.timePasses(at)
		tokens := strings.Split(s.subject, ".")
		switch tokens[1] {
		case "config":
			m.config(s, tokens[2])
			m.changed(at, tokens[2])
		case "drop":
			m.collections[tokens[2]] = newModelCollection()
		case "write":
			m.write(s, wire.Op(tokens[2]), tokens[3], tokens[4])
		}
	}
	return m
}

func newModelCollection() *modelCollection { return &modelCollection{docs: map[string]*modelDoc{}} }

func (m *model) collection(name string) *modelCollection {
	c, ok := m.collections[name]
	if !ok {
		c = newModelCollection()
		m.collections[name] = c
	}
	return c
}

// deadline is the instant at which a document expires; ok = false if never.
func (c *modelCollection) deadline(d *modelDoc) (at, ttl int64, ok bool) {
	var own struct {
		TTL *int64 `json:"ttl"`
	}
	if err := json.Unmarshal([]byte(d.body), &own); err != nil {
		panic(err)
	}
	switch {
	case c.ttl == 0, own.TTL != nil && *own.TTL == -1, own.TTL == nil && c.ttl == -1:
		return 0, 0, false
	case own.TTL != nil:
		return d.ts + *own.TTL*1000, *own.TTL, true
	default:
		return d.ts + c.ttl*1000, c.ttl, true
	}
}

// timePasses expires what has reached its deadline by an instant.
func (m *model) timePasses(now int64) {
	for name := range m.collections {
		m.expire(name, now, 0)
	}
}

// changed expires what the configuration that came at an instant has expired.
func (m *model) changed(now int64, name string) { m.expire(name, now, now) }

func (m *model) expire(name string, now, since int64) {
	c := m.collections[name]
	for id, d := range c.docs {
		at, ttl, ok := c.deadline(d)
		if !ok || at > now {
			continue
		}
		delete(c.docs, id)
		m.say("lapse.expired."+name+"."+id, fmt.Sprintf("etag %d ts %d ttl %d expired %d %s", d.etag, d.ts, ttl, max(at, since), d.body))
	}
}

func (m *model) say(subject, what string) { m.said[subject] = append(m.said[subject], what) }

func (m *model) reject(s stored, subject string, code int) {
	m.rejected++
	m.say("lapse.rejected."+subject, fmt.Sprintf("code %d seq %d %s", code, s.seq, s.data))
}

func (m *model) config(s stored, name string) {
	var want struct {
		DefaultTTL   *int64 `json:"defaultTtl"`
		IndexingMode string `json:"indexingMode"`
	}
	if err := json.Unmarshal(s.data, &want); err != nil {
		panic(err)
	}
	c, ttl := m.collection(name), int64(0)
	if want.DefaultTTL != nil {
		ttl = *want.DefaultTTL
	}
	none := want.IndexingMode == "none"
	if none && (c.ttl != 0 || ttl != 0) || c.noIndex && ttl != 0 {
		m.reject(s, name, 400)
		return
	}
	c.ttl, c.noIndex = ttl, none
}

func (m *model) write(s stored, op wire.Op, collection, id string) {
	c := m.collection(collection)
	subject := collection + "." + id
	d := c.docs[id]
	match := s.header.Get(wire.HeaderIfMatch)
	switch {
	case !slices.Contains(wire.Ops, op), op.HasBody() && !json.Valid(s.data):
		m.reject(s, subject, 400)
	case op == wire.Create && d != nil:
		m.reject(s, subject, 409)
	case d == nil && op != wire.Create && op != wire.Upsert:
		m.reject(s, subject, 404)
	case match != "" && (d == nil || match != "*" && match != fmt.Sprint(d.etag)):
		m.reject(s, subject, 412)
	case op == wire.Delete:
		delete(c.docs, id)
	default:
		next := &modelDoc{ts: s.at.UnixMilli(), etag: int64(s.seq), body: string(s.data)}
		if op == wire.Touch {
			next.body = d.body
		}
		if op == wire.Patch {
			next.body = modelMerge(d.body, string(s.data))
		}
		c.docs[id] = next
	}
}

// modelMerge merges flat objects whose values have no commas.
func modelMerge(body, patch string) string {
	members := func(s string) []string {
		if s = strings.Trim(s, "{}"); s == "" {
			return nil
		}
		return strings.Split(s, ",")
	}
	all := members(body)
	for _, p := range members(patch) {
		name, value, _ := strings.Cut(p, ":")
		i := slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, name+":") })
		switch {
		case i < 0 && value != "null":
			all = append(all, p)
		case i >= 0 && value != "null":
			all[i] = p
		case i >= 0:
			all = slices.Delete(all, i, i+1)
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

// saidOf reads what was said, per subject and in order, in the model's words.
func saidOf(t *testing.T, events []stored) map[string][]string {
	t.Helper()
	said := map[string][]string{}
	for _, s := range events {
		what := fmt.Sprintf("code %s seq %s %s", s.header.Get(wire.HeaderCode), s.header.Get(wire.HeaderSeq), s.data)
		if strings.HasPrefix(s.subject, "lapse.expired.") {
			var e wire.Event
			if err := json.Unmarshal(s.data, &e); err != nil {
				t.Fatal(err)
			}
			if s.at.UnixMilli() < int64(e.ExpiredAt) {
				t.Errorf("event %s was stored at %s: early", s.data, wire.Time(s.at.UnixMilli()))
			}
			what = fmt.Sprintf("etag %d ts %d ttl %d expired %d %s", e.Etag, e.Ts, e.TTL, e.ExpiredAt, e.Document)
		}
		said[s.subject] = append(said[s.subject], what)
	}
	return said
}

// agrees holds what was said and what is read against the log. It has to be called
// when nothing moves any more.
func (r *rig) agrees() {
	r.t.Helper()
	want := fold(r.readStream(prefix.LogStream(), 1))
	got := saidOf(r.t, r.said())
	subjects := map[string]bool{}
	for s := range want.said {
		subjects[s] = true
	}
	for s := range got {
		subjects[s] = true
	}
	for s := range subjects {
		if !slices.Equal(got[s], want.said[s]) {
			r.t.Errorf("said on %s:\n\t%s\nought to have been said:\n\t%s", s, strings.Join(got[s], "\n\t"), strings.Join(want.said[s], "\n\t"))
		}
	}
	for name, c := range want.collections {
		r.sameDocuments(name, c)
	}
}

// sameDocuments holds a collection, as a new Reader reads it, against the model.
func (r *rig) sameDocuments(name string, c *modelCollection) {
	r.t.Helper()
	var page sink.Page
	var got, want []string
	reader := r.newReader()
	for first := true; first || page.Continuation != ""; first = false {
		var err error
		eventually(r.t, "the collection can be read", func() bool {
			page, err = reader.List(r.t.Context(), name, sink.ListOptions{Continuation: page.Continuation})
			return !errors.Is(err, sink.ErrUnavailable)
		})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, d := range page.Documents {
			got = append(got, fmt.Sprintf("%s etag %d ts %d %s", d.ID, d.Etag, d.Ts, d.Body))
		}
	}
	for id, d := range c.docs {
		want = append(want, fmt.Sprintf("%s etag %d ts %d %s", id, d.etag, d.ts, d.body))
	}
	sort.Strings(got)
	sort.Strings(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("collection %s is\n\t%s\nought to be\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	conf, err := reader.Config(r.t.Context(), name)
	ttl := int64(0)
	if conf.DefaultTTL != nil {
		ttl = int64(*conf.DefaultTTL)
	}
	if err != nil || ttl != c.ttl || (conf.IndexingMode == wire.NoIndex) != c.noIndex || conf.IndexBuilding {
		r.t.Errorf("configuration of %s is %+v (%v), ought to be %d, no index %v", name, conf, err, c.ttl, c.noIndex)
	}
	count, err := reader.Count(r.t.Context(), name)
	if err != nil || count.Live != int64(len(want)) || count.Expired != 0 {
		r.t.Errorf("count of %s is %+v (%v), ought to be %d", name, count, err, len(want))
	}
}
