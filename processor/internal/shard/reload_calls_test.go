package shard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/store"
)

// calls is a Store that keeps what it is called with.
type calls struct {
	Store
	fills   [][]store.CollectionFill
	asked   []string // the collections that were counted
	commits []store.Progress
	configs []int // of each commit
	changes []store.CollectionChanges

	full    []string      // collections with documents
	takes   time.Duration // a fill
	lost    int           // the call whose answer is lost, from 1; 0 if none is
	n       int
	version string
	had     []string // versions
}

// call refuses a call that expects another version than the shard has, or leaves it at one that it had.
func (c *calls) call(version, next string) error {
	if c.n > 0 && version != c.version || next != version && slices.Contains(c.had, next) {
		return fmt.Errorf("%w: the shard is at version %s, not %s, or had %s", store.ErrFenced, c.version, version,
			next)
	}
	c.version, c.had = next, append(c.had, version, next)
	if c.n++; c.n == c.lost {
		return errLost
	}
	return nil
}

func (c *calls) Fill(_ context.Context, version, next string, changes []store.CollectionFill) error {
	time.Sleep(c.takes) // by the clock of a test
	if c.fills = append(c.fills, changes); next == version {
		return errors.New("a fill that comes twice would not be noticed")
	}
	return c.call(version, next)
}

func (c *calls) Count(_ context.Context, version string, collections []string) ([]string, uint64, error) {
	c.asked = collections
	return c.full, 7, c.call(version, version)
}

func (c *calls) Commit(_ context.Context, pr store.Progress, configs []store.ConfigChange,
	changes []store.CollectionChanges) error {
	c.commits, c.configs, c.changes = append(c.commits, pr), append(c.configs, len(configs)), append(c.changes,
		changes...)
	return c.call(pr.Version, pr.Next)
}

// entriesOf are those of a text such as "put a1, renew a2, remove a, drop, move d" of the collection c, or of
// another one: "d: put a1". A document a1 has the header "1".
func entriesOf(text string) iter.Seq2[snapshot.Entry, error] {
	var all []snapshot.Entry
	for one := range strings.SplitSeq(text, ", ") {
		e := snapshot.Entry{Collection: "c"}
		if other, rest, found := strings.Cut(one, ": "); found {
			e.Collection, one = other, rest
		}
		kind, what, _ := strings.Cut(one, " ")
		e.Kind = map[string]snapshot.Kind{"put": snapshot.Put, "renew": snapshot.Renew, "remove": snapshot.Remove,
			"drop": snapshot.Drop, "move": snapshot.Move}[kind]
		switch e.Kind {
		case snapshot.Put:
			e.ID, e.Value = what[:1], []byte("\x02"+what[1:]+"body of "+what[:1])
		case snapshot.Renew:
			e.ID, e.Value = what[:1], []byte("\x02"+what[1:])
		case snapshot.Remove:
			e.ID = what
		case snapshot.Move:
			e.Value = []byte(what)
		}
		all = append(all, e)
	}
	return (&entries{all: all}).each()
}

// shown writes changes, such as "c: drop, put a2 b1, renew x1, remove y; d: move c".
func shown(changes []store.CollectionFill) string {
	var all []string
	for _, c := range changes {
		var does []string
		if c.Drop {
			does = append(does, "drop")
		}
		if c.MoveTo != "" {
			does = append(does, "move "+c.MoveTo)
		}
		documents := func(kind string, documents []store.Document, body string) {
			var ids []string // in any order
			for _, d := range documents {
				header, whole := strings.CutSuffix(d.Value[1:], strings.ReplaceAll(body, "*", d.ID))
				if !whole || d.Collection != c.Collection {
					header += "?"
				}
				ids = append(ids, d.ID+header)
			}
			if len(documents) > 0 {
				does = append(does, kind+" "+strings.Join(slices.Sorted(slices.Values(ids)), " "))
			}
		}
		documents("put", c.Put, "body of *")
		documents("renew", c.Renew, "")
		if len(c.Remove) > 0 {
			does = append(does, "remove "+strings.Join(c.Remove, " "))
		}
		all = append(all, c.Collection+": "+strings.Join(does, ", "))
	}
	return strings.Join(all, "; ")
}

// load loads entries, with so many in a batch at most, and returns the loader.
func load(t *testing.T, to *calls, atOnce int, m *snapshot.Manifest, entries iter.Seq2[snapshot.Entry,
	error]) (l *loader, loads int, err error) {
	t.Helper()
	entriesAtOnce = atOnce
	defer func() { entriesAtOnce = 1000 }()
	l = newLoader(to, "cleared", m, entries)
	t.Cleanup(l.Close)
	for done := false; !done && err == nil; loads++ {
		if loads == 100 {
			t.Fatal("the load does not end")
		}
		if done, err = l.Load(t.Context()); done && err != nil {
			t.Errorf("a load that failed is done: %v", err)
		}
	}
	return l, loads, err
}

// TestG7_AChangeHasADocumentOnce: entries come to one change until one names a document again, or its collection is
// dropped or moved. What comes then is a change of its own.
func TestG7_AChangeHasADocumentOnce(t *testing.T) {
	for entries, want := range map[string]string{
		"put a1, put b1":                                 "c: put a1 b1",
		"put a1, put b1, put a2, put b2":                 "c: put a1 b1; c: put a2 b2",
		"put a1, put b1, put a2, put c2, put b2":         "c: put a1 b1; c: put a2 b2 c2",
		"put a1, renew a2":                               "c: put a1; c: renew a2",
		"renew a1, put a2, remove a":                     "c: renew a1; c: put a2; c: remove a",
		"remove a, remove b, put c1, renew d1":           "c: put c1, renew d1, remove a b",
		"put a1, drop, put a2":                           "c: put a1; c: drop, put a2",
		"drop, put a1, put a2":                           "c: drop, put a1; c: put a2",
		"put a1, d: put a1, drop, d: put b2":             "c: put a1; d: put a1 b2; c: drop",
		"d: put a1, put a1, move d, put a2, d: renew a2": "d: put a1; c: put a1; c: move d; c: put a2; d: renew a2",
		"put a1, d: put a1, put a2, put b2, d: remove b": "c: put a1; d: put a1, remove b; c: put a2 b2",
	} {
		to := &calls{}
		if _, _, err := load(t, to, 1000, &snapshot.Manifest{}, entriesOf(entries)); err != nil || len(to.fills) != 1 {
			t.Errorf("%s: %d batches, %v", entries, len(to.fills), err)
		} else if got := shown(to.fills[0]); got != want {
			t.Errorf("%s: %s, want %s", entries, got, want)
		}
	}
}

// TestG7_BatchesAreBounded: a batch has so many entries or bytes at most, and none is empty: the Redis of
// others is not held up. A step of the load ends after a while, however large its snapshot.
func TestG7_BatchesAreBounded(t *testing.T) {
	half := snapshot.Entry{Kind: snapshot.Put, Collection: "c", Value: make([]byte, 1<<19)}
	for _, tt := range []struct {
		n      int
		entry  snapshot.Entry
		atOnce int
		want   []int
	}{
		{0, snapshot.Entry{}, 3, nil},
		{6, snapshot.Entry{Kind: snapshot.Remove}, 3, []int{3, 3}},
		{7, snapshot.Entry{Kind: snapshot.Remove}, 3, []int{3, 3, 1}},
		{5, half, 1000, []int{2, 2, 1}},
	} {
		var all []snapshot.Entry
		for i := range tt.n {
			tt.entry.ID = fmt.Sprint(i)
			all = append(all, tt.entry)
		}
		to := &calls{}
		_, _, err := load(t, to, tt.atOnce, &snapshot.Manifest{}, (&entries{all: all}).each())
		var got []int
		for _, changes := range to.fills {
			n := 0
			for _, c := range changes {
				n += len(c.Put) + len(c.Remove)
			}
			got = append(got, n)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%d entries, %d at once: batches of %v, want %v, %v", tt.n, tt.atOnce, got, tt.want, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, loads, err := load(t, &calls{takes: 20 * time.Millisecond}, 1, &snapshot.Manifest{},
			entriesOf("put a1, put b1, put c1, put d1, put e1, put f1, put g1"))
		if loads != 3 || err != nil {
			t.Errorf("7 batches of 20 ms take %d steps, want 3 of 50 ms, %v", loads, err)
		}
	})
}

// TestG7_ALoadEnds: the commits at the end bring all configurations, and change no document. Only the last
// one says that the load has ended.
func TestG7_ALoadEnds(t *testing.T) {
	const plain, none = "plain", "none"
	for n, want := range map[int][]int{2: {2}, 1000: {1000}, 1001: {1000, 1}, 2000: {1000, 1000}, 2001: {1000, 1000,
		1}} {
		m := &snapshot.Manifest{Log: "log", Offset: 5, Watermark: 6, Stamp: store.Stamp{Seq: 5, At: 6}, Configured: 4,
			Configs: map[string]string{
				plain: store.Config{}.Encode(), none: store.Config{NoIndex: true}.Encode()}}
		for i := len(m.Configs); i < n; i++ {
			m.Configs[fmt.Sprint("without-documents-", i)] = store.Config{NoIndex: true}.Encode()
		}
		to := &calls{full: []string{none, plain}}
		l, _, err := load(t, to, 1000, m, entriesOf("plain: put a1, gone: put a1, gone: move none, renewed: renew a1"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.End(t.Context(), "loaded", 9)
		if err != nil || l.Documents != 7 || s.Version != "loaded" || s.Rebuild != 9 || s.Configured != 4 ||
			len(s.Configs) != n || !slices.Equal(s.Collections, to.full) {
			t.Errorf("%d configurations: the state is %+v, %d documents, %v", n, s, l.Documents, err)
		}
		if !slices.Equal(to.asked, []string{"gone", "none", "plain"}) {
			t.Errorf("%v were counted", to.asked)
		}
		if !slices.Equal(to.configs, want) {
			t.Errorf("%d configurations come in commits of %v, want %v", n, to.configs, want)
		}
		for i, pr := range to.commits {
			last := store.Progress{Version: pr.Version, Next: pr.Next, Offset: 5, Watermark: 6, Stamp: m.Stamp,
				Rebuild: store.Clearing, Configured: 4}
			if i == len(to.commits)-1 {
				last.Next, last.Rebuild = "loaded", 9
			}
			if diff := cmp.Diff(last, pr); diff != "" {
				t.Errorf("commit %d of %d:\n%s", i+1, len(to.commits), diff)
			}
		}
		if len(to.changes) > 0 {
			t.Errorf("documents: %+v", to.changes)
		}
	}
}

// TestG7_ALoadWithoutAnAnswerFails: the owner must not go on from a load of which one call failed, or which met
// something that it does not know. Nothing more is written then.
func TestG7_ALoadWithoutAnAnswerFails(t *testing.T) {
	m := &snapshot.Manifest{Configs: map[string]string{}}
	for i := range 1001 {
		m.Configs[fmt.Sprint("c", i)] = store.Config{}.Encode()
	}
	damaged := &snapshot.Manifest{Configs: map[string]string{"a": store.Config{}.Encode(), "b": "?"}}
	for _, tt := range []struct {
		name     string
		lost     int
		manifest *snapshot.Manifest
		entries  iter.Seq2[snapshot.Entry, error]
		calls    int
		want     error
	}{
		{"nothing is lost", 0, m, entriesOf("put a1"), 4, nil},
		{"a batch", 1, m, entriesOf("put a1"), 1, errLost},
		{"the count", 2, m, entriesOf("put a1"), 2, errLost},
		{"some configurations", 3, m, entriesOf("put a1"), 3, errLost},
		{"the last commit", 4, m, entriesOf("put a1"), 4, errLost},
		{"a configuration is damaged", 0, damaged, entriesOf("put a1"), 2, snapshot.ErrDamaged},
		{"an entry of a later version", 0, m, (&entries{all: []snapshot.Entry{{Kind: 99}}}).each(), 0,
			snapshot.ErrDamaged},
		{"the snapshot cannot be read", 0, m, func(yield func(snapshot.Entry, error) bool) {
			yield(snapshot.Entry{},
				errLost)
		}, 0, errLost},
	} {
		to := &calls{lost: tt.lost}
		l, _, err := load(t, to, 1000, tt.manifest, tt.entries)
		if err == nil {
			_, err = l.End(t.Context(), "loaded", 0)
		}
		if !errors.Is(err, tt.want) || to.n != tt.calls {
			t.Errorf("%s: %d calls, %v; want %d, %v", tt.name, to.n, err, tt.calls, tt.want)
		}
	}
	(*loader)(nil).Close()
}
