package processor

import (
	"sync"
	"testing"
	"testing/synctest"
)

func seqs(list []*message) (out []uint64) {
	for _, m := range list {
		out = append(out, m.seq)
	}
	return out
}

func bare(seq uint64) *message { return &message{seq: seq, body: make([]byte, 10)} }

// A writer that waits for room goes on when there is some, when the inbox is
// rewound, and when it is closed; no sooner.
func TestInboxIsBounded(t *testing.T) {
	for name, release := range map[string]func(b *inbox){
		"taken":   func(b *inbox) { b.take(nil) },
		"rewound": func(b *inbox) { b.rewind(0) },
		"skipped": func(b *inbox) { b.skip(2) },
		"closed":  func(b *inbox) { b.close() },
	} {
		for _, bound := range [][2]int{{2, 1 << 20}, {100, 20}} {
			synctest.Test(t, func(t *testing.T) {
				b := newInbox(bound[0], bound[1])
				b.begin(0)
				if !b.put(bare(1)) || !b.put(bare(2)) {
					t.Fatal("there was room, and put said no")
				}
				if !b.put(bare(2)) {
					t.Fatal("what is there already needs no room")
				}
				done := make(chan bool, 1)
				go func() { done <- b.put(bare(3)) }()
				synctest.Wait()
				if n, _ := b.length(); n != 2 || len(done) > 0 {
					t.Errorf("%s: there was no room, and put went on", name)
				}
				release(b)
				if ok, want := <-done, name == "taken" || name == "skipped"; ok != want {
					t.Errorf("%s: put said %v", name, ok)
				}
			})
		}
	}
}

func TestInboxRewindsAndSkips(t *testing.T) {
	b := newInbox(100, 1<<20)
	if b.put(bare(1)) || b.reading() {
		t.Error("it takes messages before reading has begun")
	}
	if at := b.begin(7); at != 0 || !b.reading() {
		t.Errorf("reading begins at %d, want 0: it has nothing yet", at)
	}
	for seq := range uint64(6) {
		b.put(bare(seq + 1))
	}
	b.put(bare(4)) // again
	b.skip(2)
	if got := seqs(b.take(nil)); len(got) != 4 || got[0] != 3 || got[3] != 6 {
		t.Errorf("took %v, want 3 to 6", got)
	}
	if n, _ := b.length(); n != 0 || b.bytes != 0 {
		t.Errorf("%d messages of %d bytes after all were taken", n, b.bytes)
	}
	if at := b.begin(9); at != 9 {
		t.Errorf("reading begins at %d, want 9, up to where all was read", at)
	}
	b.put(bare(10))
	b.rewind(3)
	if b.put(bare(11)) {
		t.Error("a rewound inbox took what comes after")
	}
	if at := b.begin(10); at != 3 {
		t.Errorf("reading begins at %d, want 3", at)
	}
	b.put(bare(3))
	b.put(bare(4))
	if got := seqs(b.take(nil)); len(got) != 1 || got[0] != 4 {
		t.Errorf("took %v, want 4", got)
	}
	b.close()
	if b.put(bare(5)) {
		t.Error("a closed inbox took a message")
	}
}

// However takes and puts fall, each message is taken once and in order.
func TestInboxHandsOver(t *testing.T) {
	const n = 20_000
	b := newInbox(7, 1<<20)
	b.begin(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		for seq := range uint64(n) {
			b.put(bare(seq + 1))
		}
	})
	for next := uint64(1); next <= n; {
		<-b.arrived
		for _, m := range b.take(nil) {
			if m.seq != next {
				t.Fatalf("took %d, want %d", m.seq, next)
			}
			next++
		}
	}
	wg.Wait()
}
