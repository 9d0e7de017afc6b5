package snapshot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestChunkThatEnds: a chunk that ends within an entry, or has an entry of an unknown kind, is damaged. The entries
// before that are those that were added.
func TestChunkThatEnds(t *testing.T) {
	all := append(documents(2, 60), Entry{Kind: Put, Collection: "c", ID: "empty"})
	var chunk []byte
	ends := map[int]int{0: 0} // how many entries there are up to a byte
	for i, e := range all {
		chunk = appendEntry(chunk, e)
		ends[len(chunk)] = i + 1
	}
	read := func(chunk []byte) (got []Entry, err error) {
		for e, failure := range entries(chunk) {
			if err = failure; err == nil {
				got = append(got, e)
			}
		}
		return got, err
	}
	whole := 0
	for cut := range len(chunk) + 1 {
		n, at := ends[cut]
		whole = max(whole, n)
		got, err := read(slices.Clone(chunk[:cut]))
		if errors.Is(err, ErrDamaged) == at || !same(got, all[:whole]) {
			t.Errorf("of %d bytes, which end within an entry: %t, %d entries are read, %v", cut, !at, len(got), err)
		}
	}
	for kind := range Kind(10) {
		got, err := read(appendEntry(nil, Entry{Kind: kind}))
		if known := kind >= Put && kind <= Move; errors.Is(err, ErrDamaged) == known || len(got) == 1 != known {
			t.Errorf("an entry of kind %d: %v, %v", kind, got, err)
		}
	}
}

// TestNamesOfObjects: a name tells its shard and its generation, and what is no name of a snapshot's object tells none.
// Else the objects of others would be removed.
func TestNamesOfObjects(t *testing.T) {
	for _, one := range []struct {
		shard      int
		generation uint64
		part       string
	}{{0, 1, "0"}, {3, 12, "10"}, {31, 9_876_543_210, "manifest"}} {
		name := objectName(one.shard, one.generation, one.part)
		if shard, generation, ok := parseName(name); shard != one.shard || generation != one.generation || !ok {
			t.Errorf("%s is of shard %d, generation %d: %t", name, shard, generation, ok)
		}
	}
	for _, name := range []string{"", "1", "1.2", "a.1.0", "1.a.0", "1.-1.0", ".1.0", "1..0"} {
		if shard, generation, ok := parseName(name); ok {
			t.Errorf("%q is of shard %d, generation %d", name, shard, generation)
		}
	}
}

// unlisted are Objects that cannot be listed, or removed.
type unlisted struct {
	*Memory
	names, remove error
}

func (o unlisted) Names(ctx context.Context) ([]string, error) {
	names, err := o.Memory.Names(ctx)
	return names, errors.Join(err, o.names)
}

func (o unlisted) Remove(context.Context, string) error { return o.remove }

// TestSweepThatFails: what does not count has to go before the next snapshot begins (O3). Where that fails, nobody goes
// on as if it had gone.
func TestSweepThatFails(t *testing.T) {
	r := newRig()
	if err := r.objects.Put(t.Context(), objectName(3, 1, "0"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.objects.Put(t.Context(), objectName(3, 1, "0"), nil); err != nil {
		t.Fatal(err)
	}
	away := errors.New("no responders")
	for _, o := range []unlisted{{r.objects, away, nil}, {r.objects, nil, away}} {
		r.Store.objects = o
		if err := r.Sweep(t.Context()); !errors.Is(err, away) {
			t.Errorf("%+v: swept with %v", o, err)
		}
		if _, err := r.claim(t.Context()); !errors.Is(err, away) {
			t.Errorf("%+v: a snapshot begins with %v", o, err)
		}
		if left, err := r.Leftovers(t.Context()); !errors.Is(err, o.names) || left == (o.names != nil) {
			t.Errorf("%+v: something is left: %t, %v", o, left, err)
		}
	}
}

// full are Objects that do not take some objects, the first times.
type full struct {
	*Memory
	part    string // of their names
	refused int    // times, for each object
	asked   map[string]int
	err     error
}

func (o *full) Put(ctx context.Context, name string, data []byte) error {
	if o.asked[name]++; strings.HasSuffix(name, o.part) && o.asked[name] <= o.refused {
		return o.err
	}
	return o.Memory.Put(ctx, name, data)
}

// TestStoreThatIsFull: an object that is not taken is stored again a few times, later and later, and no longer once
// nobody waits. Then the snapshot ends with the store's reason, and not as one that is damaged.
func TestStoreThatIsFull(t *testing.T) {
	for _, part := range []string{".0", ".1", ".manifest"} {
		for _, row := range []struct {
			refused int
			waits   time.Duration // somebody waits for that long
			asked   int
			took    time.Duration
			fails   bool
		}{
			{0, time.Hour, 1, 0, false},
			{1, time.Hour, 2, time.Second, false},
			{3, time.Hour, 4, 7 * time.Second, false},
			{4, time.Hour, 4, 7 * time.Second, true},
			{4, 2 * time.Second, 2, 2 * time.Second, true},
		} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				o := &full{r.objects, part, row.refused, map[string]int{}, errors.New("insufficient storage")}
				r.Store.objects = o
				claimed, err := r.claim(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w := newWriter()
				w.Add(Entry{Kind: Put, Collection: "c", ID: "large", Value: make([]byte, chunkBytes)})
				w.Add(documents(1, 1)[0])
				w.Finish(Manifest{Offset: 6})
				ctx, cancel := context.WithTimeout(t.Context(), row.waits)
				defer cancel()
				began := time.Now()
				_, err = r.run(ctx, w, claimed, began)
				asked := o.asked[objectName(3, 1, part[1:])]
				if (err != nil) != row.fails || row.fails && (!errors.Is(err, o.err) || errors.Is(err, ErrDamaged)) ||
					asked != row.asked || time.Since(began) != row.took {
					t.Errorf("%s is refused %d times: %v, asked %d times, after %s", part, row.refused, err, asked, time.Since(began))
				}
				if all, err := r.Generations(t.Context()); err != nil || (len(all) == 0) != row.fails {
					t.Errorf("%s is refused %d times: recorded are %v, %v", part, row.refused, all, err)
				}
			})
		}
	}
}
