package fold

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// indexed is a shard in maps: documents, and the entries of the property indexes of collection c by slot.
type indexed struct {
	t           *rapid.T
	collections *Collections
	docs        map[string]store.Stored
	entries     map[int]map[string]bool
	seq         uint64
	now         int64
}

// want are the entries that the documents have in a slot, in order.
func (x *indexed) want(pointer string) []string {
	all := []string{}
	for id, doc := range x.docs {
		values, err := entries.Of([]byte(doc.Body), []string{pointer})
		if err != nil {
			x.t.Fatal(err)
		}
		for _, v := range values[0] {
			all = append(all, entries.Member(v, id))
		}
	}
	slices.Sort(all)
	return all
}

// check checks X1 and X2.
func (x *indexed) check() {
	config := x.collections.Config("c")
	making := x.collections.Making("c")
	for slot, have := range x.entries {
		i := slices.IndexFunc(config.Indexes, func(p store.PropertyIndex) bool { return p.Slot == slot })
		if i < 0 {
			if len(have) > 0 {
				x.t.Fatalf("slot %d is of no index, and has %q", slot, slices.Sorted(maps.Keys(have)))
			}
			continue
		}
		want := x.want(config.Indexes[i].Pointer)
		if !slices.Contains(making, slot) {
			if diff := cmp.Diff(want, append([]string{}, slices.Sorted(maps.Keys(have))...)); diff != "" {
				x.t.Fatalf("slot %d, %s:\n%s", slot, config.Indexes[i].Pointer, diff)
			}
		}
		for entry := range have {
			if !slices.Contains(want, entry) {
				x.t.Fatalf("slot %d, which is being made, has %q", slot, entry)
			}
		}
	}
}

func (x *indexed) commit(configs []store.ConfigChange, changes []store.CollectionChanges) {
	for _, c := range changes {
		if c.Collection != "c" {
			continue
		}
		if c.Drop == store.DropAll {
			clear(x.docs)
		}
		for _, ch := range c.Changes {
			switch {
			case ch.New == nil:
				delete(x.docs, ch.ID)
			case ch.Body == nil:
				x.docs[ch.ID] = store.Stored{Header: *ch.New, Body: x.docs[ch.ID].Body}
			default:
				x.docs[ch.ID] = store.Stored{Header: *ch.New, Body: string(ch.Body)}
			}
		}
		for _, i := range c.Indexes {
			if x.entries[i.Slot] == nil || i.Unlink {
				x.entries[i.Slot] = map[string]bool{}
			}
			for _, entry := range i.Add {
				x.entries[i.Slot][entry] = true
			}
			for _, entry := range i.Remove {
				if slices.Contains(i.Add, entry) {
					x.t.Fatalf("%q is added and removed", entry)
				}
				delete(x.entries[i.Slot], entry)
			}
		}
		c.Emptied = len(x.docs) == 0
		x.collections.Committed(c, &DueQueue{})
	}
	x.check()
}

func (x *indexed) message(subject, body string, header map[string][]string) *Message {
	x.seq++
	return decoder.Decode(subject, header, []byte(body), Position{Seq: x.seq, Time: x.now})
}

// drawHeader draws what a write asks of the clock: it may move the document back in the order of the index by time.
func (x *indexed) drawHeader() map[string][]string {
	at := func(ms int64) []string { return []string{wire.Time(x.now + ms).String()} }
	switch rapid.IntRange(0, 4).Draw(x.t, "clock") {
	case 0:
		return map[string][]string{wire.HeaderExpiresAt: at(rapid.SampledFrom([]int64{1, 500, 9000}).Draw(x.t,
			"expires"))}
	case 1:
		return map[string][]string{wire.HeaderClock: at(-rapid.SampledFrom([]int64{1, 100, 700}).Draw(x.t, "begins"))}
	}
	return nil
}

// drawBody draws a document with values at /a and /b.
func drawBody(t *rapid.T) string {
	value := rapid.SampledFrom([]string{`1`, `"x"`, `"y"`, `null`, `true`, `{}`, `[]`, `[1,"x",1]`, `["y",2,null]`,
		`[[1]]`, `1.0`, `-0`})
	ttl := rapid.SampledFrom([]string{"", `,"ttl":1`, `,"ttl":-1`, `,"ttl":5`}).Draw(t, "ttl")
	return fmt.Sprintf(`{"a":%s,"b":{"c":%s}%s}`, value.Draw(t, "a"), value.Draw(t, "b"), ttl)
}

// write applies messages as the owner does, reading only the bodies that the decision asks for.
func (x *indexed) write() {
	var messages []*Message
	for range rapid.IntRange(1, 6).Draw(x.t, "messages") {
		op := rapid.SampledFrom(wire.Ops).Draw(x.t, "op")
		x.now += rapid.SampledFrom([]int64{0, 1, 900, 4000}).Draw(x.t, "later")
		body := ""
		if op.HasBody() {
			body = drawBody(x.t)
		}
		messages = append(messages, x.message(wire.DefaultPrefix.Write(op, "c", rapid.SampledFrom([]string{"1", "2",
			"3", "é"}).Draw(x.t, "id")), body, x.drawHeader()))
	}
	d := New(testLimits, x.collections, x.now)
	read := func(slots []*Slot, whole map[Key]bool) {
		for _, s := range slots {
			if doc, there := x.docs[s.Key.ID]; there {
				body := []byte(doc.Body)
				if !whole[s.Key] {
					body = nil
				}
				s.SetStored(&doc.Header, body)
			}
		}
	}
	read(d.Name(messages))
	if _, slots, whole := d.Lacking(messages); len(slots) > 0 {
		read(slots, whole)
	}
	for _, m := range messages {
		if !d.Apply(m) {
			x.t.Fatal("a message has to wait")
		}
	}
	x.commit(nil, d.Changes(nil))
}

// reap removes a document that is due, whose event was published before or not.
func (x *indexed) reap() {
	d := New(testLimits, x.collections, x.now)
	var due []*DueDocument
	for _, id := range slices.Sorted(maps.Keys(x.docs)) {
		doc := x.docs[id]
		if e, ok := x.collections.Config("c").History.ExpiredAt(doc.Header.Clock()); ok && e.At <= x.now {
			due = append(due, &DueDocument{Key: Key{"c", id}, Header: doc.Header, Body: []byte(doc.Body), Expiry: e,
				Published: rapid.Bool().Draw(x.t, "published")})
		}
	}
	var queue DueQueue
	queue.Set(due)
	due, _ = d.Reap(&queue, x.now, x.now)
	published := 0
	for _, doc := range due {
		if d.ExpireDue(doc); doc.Published {
			published++
		}
	}
	if len(d.Outputs) != len(due)-published || d.Expired != len(due) {
		x.t.Fatalf("%d documents are due, %d were published, and there are %d outputs", len(due), published,
			len(d.Outputs))
	}
	x.commit(nil, d.Changes(due))
}

// configure declares other indexes, or drops the collection.
func (x *indexed) configure() {
	if rapid.IntRange(0, 4).Draw(x.t, "drop") == 0 {
		x.seq++
		x.commit(x.collections.Drop("c", x.seq, x.now, false))
		return
	}
	pointers := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{`"/a"`, `"/b/c"`, `"/a/0"`}), 0, 3,
		rapid.ID).Draw(x.t, "pointers")
	m := x.message(wire.DefaultPrefix.Config("c"), fmt.Sprintf(`{"defaultTtl":5,"maxLife":%s,"indexes":[%s]}`,
		rapid.SampledFrom([]string{"null", "9"}).Draw(x.t, "maxLife"), strings.Join(pointers, ",")), nil)
	if m.Rejected != nil {
		x.t.Fatal(m.Rejected.Text)
	}
	next, refused := Configured(x.collections.Config("c"), m, x.now, x.collections)
	if refused != nil {
		x.t.Fatal(refused.Text)
	}
	next.History = ttlrules.History{}.With(0, 1, 5) // so that no message has to wait
	changes := x.collections.Reindex("c", next)
	x.commit(x.collections.Reconfigure("c", next, x.now), changes)
}

// pass passes some documents, as store.Between finds them.
func (x *indexed) pass() {
	name, m := x.collections.ToMake()
	if name == "" {
		return
	}
	limit := rapid.IntRange(1, 3).Draw(x.t, "limit")
	var found []store.Found
	for _, slice := range ToPass(m) {
		places := map[store.Place]store.Stored{}
		for id, doc := range x.docs {
			in, score := doc.Header.Index()
			if at := (store.Place{Score: score, ID: id}); in == slice.Index && slice.After.Before(at) {
				places[at] = doc
			}
		}
		var f store.Found
		for _, at := range slices.SortedFunc(maps.Keys(places), func(a, b store.Place) int {
			if a.Before(b) {
				return -1
			}
			return 1
		}) {
			if f.More = limit == 0; f.More {
				break
			}
			limit--
			f.IDs, f.Documents = append(f.IDs, at.ID), append(f.Documents, places[at])
		}
		found = append(found, f)
	}
	x.commit(nil, []store.CollectionChanges{x.collections.Pass(name, m, found)})
}

// TestEntriesFollowFromTheDocuments: whatever happens to documents and to the configuration, an index that is not being
// made has exactly the entries of the documents, and one that is being made no other. Making comes to an end.
//
// Goes red if a write is applied without the stored body, if a touch does not add the entries of a document that it
// moves past the place of a making, or if a removal leaves an entry.
func TestEntriesFollowFromTheDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &indexed{t: t, collections: NewCollections(nil, nil), docs: map[string]store.Stored{},
			entries: map[int]map[string]bool{}, seq: 1, now: 1000}
		x.collections.LacksBeginning()
		t.Repeat(map[string]func(*rapid.T){
			"write":     func(*rapid.T) { x.write() },
			"reap":      func(*rapid.T) { x.reap() },
			"configure": func(*rapid.T) { x.configure() },
			"pass":      func(*rapid.T) { x.pass() },
			"take over": func(*rapid.T) { x.takeOver() },
		})
		for range 20 {
			x.pass()
		}
		if n := x.collections.IndexesMade(); n > 0 {
			t.Fatalf("%d indexes are being made for ever", n)
		}
	})
}

// takeOver begins anew from what is stored.
func (x *indexed) takeOver() {
	configs, with, making := map[string]store.Config{}, []string{}, map[string]store.Making{}
	if c := x.collections.Collection("c"); c != nil && c.IsConfigured() {
		configs["c"] = c.Config
		if len(c.making.Slots) > 0 {
			making["c"] = c.making
		}
	}
	if len(x.docs) > 0 {
		with = []string{"c"}
	}
	made := x.collections.IndexesMade()
	x.collections = x.collections.Anew(configs, with)
	x.collections.ResumeMaking(making)
	if now := x.collections.IndexesMade(); now != made {
		x.t.Fatalf("%d indexes are being made, and after a takeover %d", made, now)
	}
}

// TestATouchWhileIndexesAreMade: a touch may move a document behind the place up to which documents were passed: one
// whose limit goes with maxLife comes to the index of those that inherit. It gets its entries with the touch.
func TestATouchWhileIndexesAreMade(t *testing.T) {
	s := NewCollections(map[string]store.Config{"c": store.Config{History: ttlrules.History{}.With(0, 1, 60),
		Etag: 1}.WithIndexes([]string{"/a"})}, []string{"c"})
	s.ResumeMaking(map[string]store.Making{"c": {Slots: []int{0}, Index: ttlrules.ByOwn}})
	m := decoder.Decode(wire.DefaultPrefix.Write(wire.Touch, "c", "x"), nil, nil, Position{Seq: 9, Time: 2000})
	d := New(testLimits, s, 1000)
	slots, whole := d.Name([]*Message{m})
	if len(slots) != 1 || !whole[slots[0].Key] {
		t.Fatal("the document is not read whole")
	}
	slots[0].SetStored(&store.Header{Ts: 1000, Etag: 1, TTL: 60, ByDefault: true, Limit: 90_000, Created: 1000},
		[]byte(`{"a":1}`))
	if !d.Apply(m) {
		t.Fatal("the touch has to wait")
	}
	want := []store.IndexChanges{{Slot: 0, Add: []string{entries.Member(entries.Value{Kind: entries.Number, Number: 1},
		"x")}}}
	changes := d.Changes(nil)
	if diff := cmp.Diff(want, changes[0].Indexes); diff != "" {
		t.Errorf("the touch changes the entries:\n%s", diff)
	}
	if in, _ := changes[0].Changes[0].New.Index(); in != ttlrules.ByInherit {
		t.Errorf("the document comes to index %v", in)
	}
}

// TestEntriesOfTheSecondIndex: a document changes in the second of two indexes alone.
func TestEntriesOfTheSecondIndex(t *testing.T) {
	value := func(n float64) []entries.Value { return []entries.Value{{Kind: entries.Number, Number: n}} }
	var c store.CollectionChanges
	changeEntries(&c, store.Config{}.WithIndexes([]string{"/a", "/b"}), nil, "x",
		[][]entries.Value{value(1), value(2)}, [][]entries.Value{value(1), value(3)})
	want := []store.IndexChanges{{Slot: 1, Add: []string{entries.Member(value(3)[0], "x")},
		Remove: []string{entries.Member(value(2)[0], "x")}}}
	if diff := cmp.Diff(want, c.Indexes); diff != "" {
		t.Error(diff)
	}
}

// TestG9_EntriesOfAStepAreBounded: a step ends once it changes so many entries, also where patches change the
// documents, and where documents with many entries are due together.
func TestG9_EntriesOfAStepAreBounded(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(0, 1, 5)}.WithIndexes([]string{"/a"})
	body := `{"a":[` + strings.TrimSuffix(strings.Repeat("%d,", entries.MaxElements), ",") + `]}`
	values := make([]any, entries.MaxElements)
	for i := range values {
		values[i] = i
	}
	body = fmt.Sprintf(body, values...)
	for _, op := range []wire.Op{wire.Upsert, wire.Patch} {
		d := New(testLimits, oneConfig(config), 0)
		n := 0
		for !d.Full() {
			id := fmt.Sprint(n)
			s := d.Slot(Key{Collection: "c", ID: id})
			s.SetStored(&store.Header{Ts: 1000, Etag: 1}, []byte(`{"a":[100,200]}`))
			if n++; !d.Apply(decoder.Decode(wire.DefaultPrefix.Write(op, "c", id), nil, []byte(body),
				Position{Seq: uint64(n), Time: 2000})) || n > 1000 {
				t.Fatalf("%s: %d messages", op, n)
			}
		}
		changed := 0
		for _, c := range d.Changes(nil) {
			for _, x := range c.Indexes {
				changed += len(x.Add) + len(x.Remove)
			}
		}
		if most := entriesAtOnce + 2*entries.MaxElements; changed > most || changed < entriesAtOnce/2 {
			t.Errorf("%s: %d messages change %d entries, want at most %d", op, n, changed, most)
		}
	}
	var queue DueQueue
	var docs []*DueDocument
	for i := range 2000 {
		docs = append(docs, &DueDocument{Key: Key{"c", fmt.Sprint(i)}, Body: []byte(body)})
	}
	queue.Set(docs)
	due, _ := New(testLimits, oneConfig(config), 0).Reap(&queue, 1, 1)
	if want := entriesAtOnce / entries.MaxElements; len(due) != want {
		t.Errorf("%d of the due documents are reaped in a step, want %d", len(due), want)
	}
}
