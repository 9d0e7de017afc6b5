package fold

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG9_ABatchIsBounded: in messages and in bytes. The stored bodies that it needs are bounded as they are read: see
// TestG9_StoredBodiesAreBounded.
func TestG9_ABatchIsBounded(t *testing.T) {
	for _, tt := range []struct {
		op       wire.Op
		n, bytes int
		want     int
	}{
		{wire.Upsert, 2 * BatchMessages, 0, BatchMessages},
		{wire.Upsert, 9, BatchBytes / 2, 2},
		{wire.Upsert, 9, BatchBytes/2 - 1, 3},
		{wire.Patch, 2 * BatchMessages, 0, BatchMessages},
		{wire.Touch, 9, 0, 9},
	} {
		pending := make([]*Message, tt.n)
		for i := range pending {
			pending[i] = &Message{Kind: Write, Op: tt.op, Body: make([]byte, tt.bytes)}
		}
		if got := len(Batch(pending)); got != tt.want {
			t.Errorf("%d messages %s of %d bytes: %d in a batch, want %d", tt.n, tt.op, tt.bytes, got, tt.want)
		}
	}
}

// largeStore are stored documents as an owner reads them: [store.ReadBytes] of bodies in one read, and at least one.
type largeStore struct {
	docs  map[Key]string
	reads int
	most  int // bytes of bodies in one step
}

// read reads what messages name, as an owner does, and returns those that the step applies.
func (l *largeStore) read(d *Decision, messages []*Message) []*Message {
	inStep := 0
	read := func(slots []*Slot, whole map[Key]bool) {
		l.reads++
		wants, order := Wants(slots, whole)
		left := store.ReadBytes
		for i := range wants {
			for _, s := range order[i] {
				body, there := l.docs[s.Key]
				if !there {
					continue
				}
				h := &store.Header{Ts: 1000, Etag: 1}
				if !whole[s.Key] || left <= 0 {
					s.SetStored(h, nil)
					continue
				}
				left, inStep = left-len(body), inStep+len(body)
				s.SetStored(h, []byte(body))
			}
		}
	}
	read(d.Name(messages))
	for {
		batch, slots, whole := d.Lacking(messages)
		if len(slots) == 0 {
			l.most = max(l.most, inStep)
			return batch
		}
		read(slots, whole)
		messages = batch
	}
}

// withGeneration is a catalog in which collection c has an old generation.
type withGeneration struct{ oneConfig }

func (withGeneration) Generations(name string) []string {
	if name == "c" {
		return []string{"c.3"}
	}
	return nil
}

// TestG9_StoredBodiesAreBounded: a step reads some MiB of the bodies that its messages need, and applies the messages
// before the first that lacks one. The first message gets all that it needs, so each step goes on.
//
// Goes red if a step reads all bodies of its batch, if it applies a message without its body, or if it stands still.
func TestG9_StoredBodiesAreBounded(t *testing.T) {
	const size = 3 << 20
	body := `{"a":"` + strings.Repeat("x", size-8) + `"}`
	// it needs the bodies of all for their events
	dead := oneConfig(store.Config{History: ttlrules.History{}.With(0, 1, 1)})
	for name, c := range map[string]struct {
		catalog Catalog
		op      wire.Op
		ids     int
		steps   int
		most    int
	}{
		"patches":                     {oneConfig{}, wire.Patch, 10, 5, 2},
		"patches of one document":     {oneConfig{}, wire.Patch, 1, 1, 1},
		"touches":                     {dead, wire.Touch, 10, 5, 2},
		"upserts of what has expired": {dead, wire.Upsert, 10, 5, 2},
		"and of an old generation":    {withGeneration{dead}, wire.Upsert, 10, 10, 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := largeStore{docs: map[Key]string{}}
			var messages []*Message
			for i := range 10 {
				id := fmt.Sprint("x", i%c.ids)
				l.docs[Key{Collection: "c", ID: id}], l.docs[Key{Collection: "c.3", ID: id}] = body, body
				text := ""
				if c.op.HasBody() {
					text = `{"b":1}`
				}
				messages = append(messages, decoder.Decode(wire.DefaultPrefix.Write(c.op, "c", id), nil, []byte(text),
					Position{Seq: uint64(i + 9), Time: 5000}))
			}
			steps := 0
			for rest := messages; len(rest) > 0; steps++ {
				d := New(Limits{Log: testLimits.Log, MaxBody: 2 * size}, c.catalog, 0)
				batch := l.read(d, rest)
				if len(batch) == 0 || steps > 20 {
					t.Fatal("the steps stand still")
				}
				for _, m := range batch {
					if !d.Apply(m) {
						t.Fatal("a message is not applied")
					}
				}
				for _, o := range d.Outputs {
					if o.Seq == 0 && o.Message.Key.Seq == 1 && d.outputBytes < size {
						t.Fatal("an event has no document")
					}
				}
				rest = rest[len(batch):]
			}
			if steps != c.steps || l.most > c.most*size {
				t.Errorf("%d steps, want %d; %d bytes of bodies in one, want at most %d", steps, c.steps, l.most,
					c.most*size)
			}
		})
	}
}

// TestG9_ManyPatchesOfOneDocument: 1,500 small patches of a document with 30,000 members, and beside each a write of
// another id, parse the document once in each step, and a step has 512 messages. Where the patches go to several
// such documents, a step ends when it has parsed some MiB.
//
// Goes red if each patch parses the document, or if the bytes that are parsed do not end a step.
func TestG9_ManyPatchesOfOneDocument(t *testing.T) {
	var wide strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&wide, `,"member-%d":{"name":"item %d","n":%d}`, i, i, i)
	}
	body := "{" + wide.String()[1:] + "}"
	for documents, n := range map[int]int{1: 1500, 8: 48} {
		most := 2*n/BatchMessages + 1
		if documents > 1 {
			most = 2 * n
		}
		docs := map[string][]byte{}
		var messages []*Message
		patches := 0
		for i := range n {
			id := fmt.Sprint("wide", i%documents)
			docs[id] = []byte(body)
			patch := fmt.Sprintf(`{"member-%d":{"n":%d},"new":%d}`, i*7, i, i)
			patches += len(patch)
			for id, text := range map[string]string{id: patch, fmt.Sprint(i): `{}`} {
				op := wire.Upsert
				if text == patch {
					op = wire.Patch
				}
				messages = append(messages, decoder.Decode(wire.DefaultPrefix.Write(op, "c", id), nil, []byte(text),
					Position{Seq: uint64(len(messages) + 9), Time: 5000}))
			}
		}
		parsed, steps := 0, 0
		for rest := messages; len(rest) > 0; steps++ {
			d := New(Limits{Log: testLimits.Log, MaxBody: 8 << 20}, oneConfig{}, 0)
			for id, body := range docs {
				d.Slot(Key{Collection: "c", ID: id}).SetStored(&store.Header{Ts: 1000, Etag: 1}, body)
			}
			n := 0
			for _, m := range Batch(rest) {
				if n++; !d.Apply(m) {
					t.Fatal("a message is not applied")
				}
				if d.Full() {
					break
				}
			}
			if one := d.parsed; one > parseBytes+2*len(body)+64*n {
				t.Fatalf("a step parses %d bytes", one)
			}
			for _, c := range d.Changes(nil) {
				for _, change := range c.Changes {
					if docs[change.ID] != nil {
						docs[change.ID] = change.Body
					}
				}
			}
			parsed, rest = parsed+d.parsed, rest[n:]
		}
		if want := steps*documents*(len(body)+100_000) + patches; parsed > want || steps > most {
			t.Errorf("%d documents: %d bytes are parsed in %d steps, want at most %d in %d", documents, parsed, steps,
				want, most)
		}
		t.Logf("%d documents of %d bytes: %d bytes are parsed in %d steps", documents, len(body), parsed, steps)
	}
}

// TestFullBesideTheLargest: patches of a document that has more bytes than a step may parse do not end the step, since
// they parse it once. The first patch of a second such document ends it.
func TestFullBesideTheLargest(t *testing.T) {
	d := New(Limits{Log: testLimits.Log, MaxBody: 8 << 20}, oneConfig{}, 0)
	body := []byte(`{"a":"` + strings.Repeat("x", parseBytes) + `"}`)
	for i, id := range []string{"one", "one", "two"} {
		if slot := d.Slot(Key{Collection: "c", ID: id}); slot.Now == nil {
			slot.SetStored(&store.Header{Ts: 1000, Etag: 1}, body)
		}
		if !d.Apply(decoder.Decode(wire.DefaultPrefix.Write(wire.Patch, "c", id), nil, []byte(`{"b":1}`),
			Position{Seq: uint64(9 + i), Time: 5000})) {
			t.Fatal("a message is not applied")
		}
		if full := d.Full(); full != (id == "two") {
			t.Errorf("after patch %d, of %s: the step is full: %v", i+1, id, full)
		}
	}
}

// TestWorkNamesALargeDocument: people are told what a step does that may take long.
func TestWorkNamesALargeDocument(t *testing.T) {
	d := New(Limits{Log: testLimits.Log, MaxBody: 8 << 20}, oneConfig{}, 0)
	message := func(op wire.Op, id, body string) *Message {
		return decoder.Decode(wire.DefaultPrefix.Write(op, "orders", id), nil, []byte(body), Position{Seq: 9,
			Time: 5000})
	}
	for id, size := range map[string]int{"42": 3_200_000, "small": 100} {
		d.Slot(Key{Collection: "orders", ID: id}).SetStored(&store.Header{Ts: 1000, Etag: 1}, []byte(`{"a":"`+
			strings.Repeat("x", size-8)+`"}`))
	}
	const want = "merging patches into orders/42, a document of 3.2 MB"
	patch := message(wire.Patch, "42", `{"b":1}`)
	before, applied := d.Work(patch), d.Apply(patch)
	if after := d.Work(patch); before != want || after != want || !applied {
		t.Errorf("it is %q, and after the first patch %q; want %q", before, after, want)
	}
	for _, m := range []*Message{message(wire.Patch, "small", `{"b":1}`), message(wire.Patch, "absent", `{"b":1}`),
		message(wire.Touch, "42", ``), {Kind: Malformed}} {
		if work := d.Work(m); work != "" {
			t.Errorf("%s of %s: %q", m.Op, m.ID, work)
		}
	}
}

// TestG3_ATouchedDocumentThatExpiresIsReadWhole: its event needs the body. No TTL is shorter than a
// second, so it cannot expire in a shorter batch.
func TestG3_ATouchedDocumentThatExpiresIsReadWhole(t *testing.T) {
	for after, want := range map[int64]int{999: 0, 1000: 1} {
		d := New(testLimits, oneConfig(store.Config{}), 0)
		touch := func(id string, at int64) *Message {
			return decoder.Decode(wire.DefaultPrefix.Write(wire.Touch, "c", id), nil, nil, Position{Seq: uint64(at),
				Time: at})
		}
		later := decoder.Decode(wire.DefaultPrefix.Write(wire.Delete, "c", "b"), nil, nil, Position{Seq: 2, Time: 5000 +
			after})
		if _, whole := d.Name([]*Message{touch("a", 5000), later}); len(whole) != want {
			t.Errorf("a batch of %d ms: %d documents are read whole, want %d", after, len(whole), want)
		}
	}
}

// TestG2_ReapOnceReadersHaveReachedTheDeadline: not a millisecond before, and not one after.
func TestG2_ReapOnceReadersHaveReachedTheDeadline(t *testing.T) {
	for reached, want := range map[int64]int{8999: 0, 9000: 1} {
		d := New(testLimits, oneConfig(store.Config{}), 0)
		queue := &DueQueue{}
		queue.Set([]*DueDocument{{Key: Key{Collection: "c", ID: "a"}, Expiry: ttlrules.Expiry{At: 9000}}})
		if due, held := d.Reap(queue, 9000, reached); len(due) != want || held != (want == 0) {
			t.Errorf("readers have reached %d: %d documents are reaped, held %t", reached, len(due), held)
		}
	}
}

// folder is the store of a shard in maps, for TestBatchBoundariesDoNotMatter.
type folder struct {
	docs      map[Key]Version
	watermark int64
	published []events.Message
	outcomes  []Outcome
	config    store.Config
	held      int // messages that had to wait until the history was settled
	banded    int // messages that needed a new band of the index
}

// step applies a batch as stepBy does, with what is stored read without bodies
// where the processor would read it so.
func (f *folder) step(messages []*Message) {
	d := New(Limits{Log: testLimits.Log, MaxBody: 60}, oneConfig(f.config), f.watermark)
	for _, m := range messages {
		if m.Kind != Write {
			continue
		}
		if s := d.Slot(Key{Collection: m.Collection, ID: m.ID}); s.Stored == nil {
			if v, ok := f.docs[s.Key]; ok {
				s.Stored, s.Now = &v.Header, &Version{Header: v.Header, Body: v.Body}
			}
		}
	}
	applied := 0
	for applied < len(messages) && !d.Full() && d.Apply(messages[applied]) {
		applied++
	}
	full := d.Full()
	f.finish(d)
	if rest := messages[applied:]; len(rest) > 0 {
		if !full {
			f.settle(rest[0])
		}
		f.step(rest)
	}
}

// settle reaps the documents that are due at a message, and settles the history.
func (f *folder) settle(m *Message) {
	d := New(testLimits, oneConfig(f.config), max(f.watermark, m.Time))
	for _, key := range slices.SortedFunc(maps.Keys(f.docs), func(a, b Key) int { return cmp.Compare(a.ID, b.ID) }) {
		s := d.Slot(key)
		s.SetStored(new(f.docs[key].Header), f.docs[key].Body)
		d.expireIn(s, f.config, 0)
	}
	f.finish(d)
	f.config.History = f.config.History.Settled()
	f.held++
}

func (f *folder) finish(d *Decision) {
	f.watermark = d.Watermark
	for _, o := range d.Outputs {
		f.published = append(f.published, o.Message)
	}
	f.outcomes = append(f.outcomes, d.Outcomes...)
	for _, change := range d.Banded() {
		f.config = *change.Config
		f.banded++
	}
	for _, c := range d.Changes(nil) {
		for _, change := range c.Changes {
			key := Key{Collection: c.Collection, ID: change.ID}
			if change.New == nil {
				delete(f.docs, key)
			} else {
				f.docs[key] = Version{Header: *change.New, Body: change.Body}
			}
		}
	}
}

// TestG1_BatchBoundariesDoNotMatter: the same messages have the same outputs and leave the
// same documents, however they are cut into batches: so a crash may cut them anew. It
// fails if a decision depends on anything but the messages before it.
func TestG1_BatchBoundariesDoNotMatter(t *testing.T) {
	banded := 0
	defer func() {
		if banded == 0 {
			t.Error("no message needed a band of the index")
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		config := store.Config{Changes: rapid.Bool().Draw(t, "changes")}
		for i := range rapid.IntRange(1, 3).Draw(t, "epochs") {
			config.History = config.History.With(int64(2000*i), uint64(i+1),
				ttlrules.Default(rapid.SampledFrom([]int{-1, 0, 1, 2}).Draw(t, "default")))
		}
		var messages []*Message
		if rapid.Bool().Draw(t, "banded") { // it inherits with a clock that a former default does not allow
			config.History = ttlrules.History(nil).With(0, 1, 1).With(2000, 2, -1)
			messages = append(messages, decoder.Decode("lapse.write.upsert.c.x",
				nats.Header{wire.HeaderClock: {wire.ClockKeep}}, []byte(`{}`), Position{Seq: 4, Time: 5000}))
		}
		at := int64(5000)
		for i := range rapid.IntRange(1, 30).Draw(t, "n") {
			// Stamps may fall, and often meet a deadline to the millisecond.
			at += rapid.SampledFrom([]int64{0, 0, 1, 999, 1000, -1}).Draw(t, "pause")
			op := rapid.SampledFrom(append(wire.Ops, "frob")).Draw(t, "op")
			body := ""
			if op.HasBody() {
				body = rapid.SampledFrom([]string{`{"a":1}`, `{"ttl":1}`, `{"ttl":2,"b":{}}`, `{"ttl":-1}`,
					`{"ttl":null}`, `{"ttl":0}`, `{`,
					`{"b":{"c":"0123456789","c":1,"ttl":5}}`, ` { "b" : { "d":"0123456789" }, "a":null}`, `{"b":null}`,
					`{"c":{"e":{ "f" : null}},"d":"0123456789"}`, `{"c":{"e":{"g":[]}}}`}).Draw(t, "body")
			}
			header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}
			if match := rapid.SampledFrom([]string{"", "", "*", "3", "4"}).Draw(t, "match"); match != "" {
				header[wire.HeaderIfMatch] = []string{match}
			}
			if op == wire.Upsert || op == wire.Replace || op == wire.Patch {
				header[wire.HeaderClock] = rapid.SampledFrom([][]string{nil, {wire.ClockKeep}}).Draw(t, "clock")
			}
			if after := rapid.SampledFrom([]int64{-1, -1, 0, 1, 500}).Draw(t, "deadline"); after >= 0 &&
				op != wire.Delete {
				header[wire.HeaderExpiresAt] = []string{wire.Time(at + after).String()}
			}
			id := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "id")
			subject := rapid.SampledFrom([]string{"lapse.write." + string(op) + ".c." + id, "lapse.write." +
				string(op) + ".c." + id, "lapse.write.upsert.c"}).Draw(t, "subject")
			messages = append(messages, decoder.Decode(subject, header, []byte(body), Position{Seq: uint64(i + 5),
				Time: at}))
		}
		one, many := folder{docs: map[Key]Version{}, config: config}, folder{docs: map[Key]Version{}, config: config}
		for _, f := range []folder{one, many} { // older than the default
			f.docs[Key{Collection: "c", ID: "x"}] = Version{Header: store.Header{Ts: 100, Etag: 3, TTL: ttlrules.Never},
				Body: []byte(`{"ttl":-1}`)}
		}
		for _, m := range messages {
			one.step([]*Message{m})
		}
		for rest := messages; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			many.step(rest[:n])
			rest = rest[n:]
		}
		banded += one.banded
		if !reflect.DeepEqual(one, many) {
			t.Fatalf("one by one:\n%+v\nin batches:\n%+v", one, many)
		}
		for _, v := range one.docs {
			if err := Check(v.Body, decoder.MaxLevels); err != nil {
				t.Fatal(err)
			}
		}
	})
}
