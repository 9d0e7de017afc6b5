package fold

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// keysOf are the keys of outputs.
func keysOf(outputs []Output) (keys []string) {
	for _, o := range outputs {
		keys = append(keys, o.Message.Key.String())
	}
	return keys
}

// TestG3_ChangesOfAllOperations: each write that takes effect has one message, behind the event of the
// version that it finds expired. A write that takes none has its rejection alone.
//
// Goes red if a delete has no message, if a rejected write has one, or if the message comes before the
// event.
func TestG3_ChangesOfAllOperations(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(1000, 1, 60).Settled(), Changes: true}
	live := func() *Version { return &Version{Header: store.Header{Ts: 40_000, Etag: 5}, Body: []byte(`{"a":1}`)} }
	dead := func() *Version {
		return &Version{Header: store.Header{Ts: 40_000, Etag: 5, Absolute: 45_000}, Body: []byte(`{"a":1}`)}
	}
	version := func(document string) wire.Change {
		at := wire.Time(110_000)
		return wire.Change{ID: "x", Collection: "c", Document: []byte(document), Etag: 9, Ts: 50_000, ExpiresAt: &at}
	}
	touched := version("")
	touched.Document, touched.Omitted, touched.Unchanged = nil, true, true
	gone := wire.Change{ID: "x", Collection: "c", Ts: 50_000}
	for _, c := range []struct {
		message *Message
		live    *Version
		kind    string
		want    wire.Change
		before  string // the output before the message
	}{
		{targeted(wire.Upsert, `{"b":2}`), nil, wire.TypeCreated, version(`{"b":2}`), ""},
		{targeted(wire.Create, `{"b":2}`), nil, wire.TypeCreated, version(`{"b":2}`), ""},
		{targeted(wire.Upsert, `{"b":2}`), live(), wire.TypeUpdated, version(`{"b":2}`), ""},
		{targeted(wire.Replace, `{"b":2}`), live(), wire.TypeUpdated, version(`{"b":2}`), ""},
		{targeted(wire.Patch, `{"b":2}`), live(), wire.TypeUpdated, version(`{"a":1,"b":2}`), ""},
		{targeted(wire.Touch, ``), live(), wire.TypeUpdated, touched, ""},
		{targeted(wire.Delete, ``), live(), wire.TypeDeleted, gone, ""},
		{targeted(wire.Upsert, `{"b":2}`), dead(), wire.TypeCreated, version(`{"b":2}`), "e5"},
		{targeted(wire.Create, `{"b":2}`), live(), "", gone, "r9"},
		{targeted(wire.Touch, ``), nil, "", gone, "r9"},
		{targeted(wire.Delete, ``), dead(), "", gone, "e5 r9"},
	} {
		_, d := decideOne(t, config, c.live, c.message)
		want := strings.Fields(c.before)
		if c.kind != "" {
			want = append(want, "c9")
		}
		if diff := cmp.Diff(want, keysOf(d.Outputs), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: outputs:\n%s", c.message.Op, diff)
		} else if expect := (Output{Message: events.Changed(testLimits.Log, c.kind, 9, c.want, 50_000, ""),
			Seq: 9}); c.kind != "" && !reflect.DeepEqual(d.Outputs[len(want)-1], expect) {
			t.Errorf("%s: the message is %+v, want %+v", c.message.Op, d.Outputs[len(want)-1], expect)
		}
		config := config
		config.Changes = false
		if _, d = decideOne(t, config, c.live, c.message); c.kind != "" && len(d.Outputs) != len(want)-1 {
			t.Errorf("%s without changes: outputs %v", c.message.Op, keysOf(d.Outputs))
		}
	}
}

// TestChangesWithoutTheDocument: where eventBody is false, a change has no document. A touch has none in any case, and
// need not read it.
func TestChangesWithoutTheDocument(t *testing.T) {
	config := store.Config{Changes: true}
	named := func() int {
		_, whole := New(testLimits, oneConfig(config), 0).Name([]*Message{targeted(wire.Touch, ``)})
		return len(whole)
	}
	if named() != 0 {
		t.Error("a touch reads the document, although its message leaves it out")
	}
	config.Bodies = []store.BodyChange{{Since: 1, Seq: 1}}
	_, d := decideOne(t, config, nil, targeted(wire.Upsert, `{"b":2}`))
	want := events.Changed(testLimits.Log, wire.TypeCreated, 9, wire.Change{ID: "x", Collection: "c", Omitted: true,
		Etag: 9, Ts: 50_000}, 50_000, "")
	if len(d.Outputs) != 1 || !reflect.DeepEqual(d.Outputs[0].Message, want) {
		t.Errorf("outputs %v", d.Outputs)
	}
}

// TestChangesBoundAStep: patches are short, and the documents of their messages are not. So a step ends
// after some of them.
//
// Goes red if Full counts the messages instead.
func TestChangesBoundAStep(t *testing.T) {
	d := New(Limits{Log: testLimits.Log, MaxBody: 2 * BatchBytes}, oneConfig(store.Config{Changes: true}), 0)
	body := []byte(`{"a":"` + strings.Repeat("x", BatchBytes/4) + `"}`)
	n := 0
	for ; n < 10 && !d.Full(); n++ {
		m := decoder.Decode(fmt.Sprint("lapse.write.patch.c.x", n), nats.Header{}, []byte(`{"b":1}`),
			Position{Seq: uint64(n + 1), Time: 50_000})
		h := store.Header{Ts: 40_000, Etag: 5}
		d.Slot(Key{Collection: "c", ID: m.ID}).SetStored(&h, body)
		if !d.Apply(m) {
			t.Fatal("a patch is not applied")
		}
	}
	if n != 4 {
		t.Errorf("a step ends after %d patches, want 4", n)
	}
}

// TestOneChangeOfReadsInEachTTL: reads renew a document ten times in each TTL, and one of ten renewals is published. A
// touch of a client is published each time.
//
// It fails if each renewal is published, or none.
func TestOneChangeOfReadsInEachTTL(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(0, 1, 10), SlideOnRead: wire.SlideTenth, Changes: true}
	for name, header := range map[string]nats.Header{"client": {}, "read": {wire.HeaderSlide: {"true"}}} {
		live, published := &Version{Header: store.Header{Ts: 1000, Etag: 1}, Body: []byte("{}")}, 0
		for n := range uint64(100) { // ten TTLs
			header.Set(wire.HeaderIfMatch, fmt.Sprint(live.Header.Etag))
			at := 2000 + 1000*int64(n)
			m := decoder.Decode("lapse.write.touch.c.x", header, nil, Position{Seq: n + 2, Time: at, Stamp: at * 1e6})
			d := New(testLimits, oneConfig(config), 0)
			d.Slot(Key{Collection: "c", ID: "x"}).SetStored(&live.Header, live.Body)
			if !d.Apply(m) || len(d.Rejections) > 0 {
				t.Fatalf("%s: touch %d is refused: %v", name, n, d.Rejections)
			}
			published += len(d.Outputs)
			live = d.Slot(Key{Collection: "c", ID: "x"}).Now
		}
		if want := map[string]int{"client": 100, "read": 10}[name]; published != want {
			t.Errorf("%s: %d changes of 100 touches in ten TTLs are published, want %d", name, published, want)
		}
	}
}

// TestChangesAreConfigured: the property is stored, read again and shown, and a message without it takes
// it away.
func TestChangesAreConfigured(t *testing.T) {
	c := store.Config{}
	for i, body := range []string{`{"changes":true}`, `{"changes":true,"defaultTtl":5}`, `{"changes":false}`,
		`{"changes":true}`, `{}`} {
		seq := uint64(i + 1)
		var r *Refusal
		if c, r = Configured(c, decoder.Decode("lapse.config.c", nil, []byte(body), Position{Seq: seq, Time: 1000}),
			1000, oneConfig{}); r != nil {
			t.Fatal(r)
		}
		again, err := store.DecodeConfig(c.Encode())
		if want := strings.Contains(body, "true"); err != nil || again.Changes != want || again.Wire().Changes != want {
			t.Errorf("%s is read again as %+v, %v", body, again, err)
		}
	}
}
