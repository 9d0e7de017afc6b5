package live

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestL1_Ring: a client that reads and waits gets every message of its topic behind its
// position, in order and once, or is told that it is too slow.
func TestL1_Ring(t *testing.T) {
	topics := []topic{{Expired, "", ""}, {Expired, "a", ""}, {Expired, "b", ""}, {Rejected, "", ""}, {Expiring, "a", ""},
		{Rejected, "a", ""}, {Changed, "a", ""}, {Changed, "a", "1"}, {Changed, "b", "2"}}
	rapid.Check(t, func(t *rapid.T) {
		r := newRing(10)
		seq := uint64(10)
		var all []message
		type reader struct {
			topic    topic
			position uint64
			got      []string
			wait     *waiter
		}
		var readers []*reader
		for _, t := range topics {
			readers = append(readers, &reader{topic: t, position: 10})
		}
		step := func(c *reader) {
			for {
				if c.wait != nil {
					select {
					case <-c.wait.come:
						c.position = max(c.position, c.wait.first-1)
						c.wait = nil
					default:
						return
					}
				}
				frames, next, wait, ok := r.read(c.topic, c.position, 3, nil)
				if !ok {
					t.Fatal("the ring is large enough")
				}
				for _, f := range frames {
					if c.topic.kind == Changed && bytes.HasPrefix(f, []byte("event:")) {
						continue
					}
					c.got = append(c.got, string(f))
				}
				c.position, c.wait = next, wait
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			var batch []message
			for range rapid.IntRange(0, 5).Draw(t, "messages") {
				seq += uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
				of := wire.About{Kind: rapid.SampledFrom([]Kind{Expired, Expiring, Rejected, Changed, Due}).Draw(t, "kind"),
					Collection: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "collection")}
				if of.Kind == Expired || of.Kind == Changed || of.Kind == Due {
					of.ID = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "id")
				}
				batch = append(batch, message{seq: seq, about: of, frame: fmt.Append(nil, seq)})
			}
			all = append(all, batch...)
			r.add(batch)
			step(readers[rapid.IntRange(0, len(readers)-1).Draw(t, "reader")])
		}
		for _, c := range readers {
			step(c)
			var want []string
			for _, m := range all {
				if c.topic.covers(m.about) {
					want = append(want, fmt.Sprint(m.seq))
				}
			}
			if strings.Join(c.got, " ") != strings.Join(want, " ") {
				t.Fatalf("%+v got %v, want %v", c.topic, c.got, want)
			}
			r.leave(c.topic, c.wait)
		}
		if len(r.waiting) > 0 {
			t.Fatalf("the ring keeps %d waiters", len(r.waiting))
		}
	})
}

// TestL2_Ring: the ring is bounded, and tells a client that it has fallen behind.
func TestL2_Ring(t *testing.T) {
	r := newRing(0)
	for n := range 2 * ringMessages {
		r.add([]message{{seq: uint64(n + 1), about: wire.About{Kind: Expired, Collection: "a"}, frame: []byte("x")}})
	}
	if len(r.messages) != ringMessages || r.from != ringMessages {
		t.Errorf("%d messages behind %d", len(r.messages), r.from)
	}
	if _, _, _, ok := r.read(topic{}, ringMessages-1, 1, nil); ok {
		t.Error("it has what it has dropped")
	}
	if _, _, _, ok := r.read(topic{}, ringMessages, 1, nil); !ok {
		t.Error("it no longer has what is there")
	}
	large := bytes.Repeat([]byte("x"), ringBytes/2)
	for n := range 3 {
		r.add([]message{{seq: uint64(3*ringMessages + n), about: wire.About{Kind: Expired, Collection: "a"}, frame: large}})
	}
	if r.bytes > ringBytes || len(r.messages) != 2 {
		t.Errorf("%d messages with %d bytes", len(r.messages), r.bytes)
	}
}

// FuzzFrame: a frame is one event, whatever line ends the data has, and gives the data back up
// to these.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("{\r\n\"a\": 1\r}\n"), "17")
	f.Add([]byte(""), "1")
	f.Fuzz(func(t *testing.T, data []byte, id string) {
		if strings.ContainsAny(id, "\r\n") {
			return
		}
		b := frame("", id, data)
		if bytes.Count(b, []byte("\n\n")) != 1 || !bytes.HasSuffix(b, []byte("\n\n")) && len(data) > 0 {
			t.Fatalf("%q is not one event", b)
		}
		var got []byte
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			if rest, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				got = append(got, rest...)
			}
		}
		if plain := strings.NewReplacer("\r", "", "\n", "").Replace(string(data)); string(got) != plain {
			t.Errorf("%q gives %q", data, got)
		}
	})
}
