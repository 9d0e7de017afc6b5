package feed

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

func seqs(list []*fold.Message) (out []uint64) {
	for _, m := range list {
		out = append(out, m.Seq)
	}
	return out
}

func bare(seq uint64) *fold.Message {
	return &fold.Message{Position: fold.Position{Seq: seq}, Body: make([]byte, 10)}
}

func never() bool  { return false }
func always() bool { return true }

// attached is an inbox that the main reader fills.
func attached(maxCount, maxBytes int) *Inbox {
	b := newInbox(maxCount, maxBytes)
	b.Rewind(0, 0)
	b.begin(0, true)
	<-b.left
	return b
}

func (b *Inbox) takeAll() []*fold.Message {
	list, _ := b.Take(nil, 1<<30, 1<<30)
	return list
}

// The main reader waits for room while no other partition needs it, and goes on when there
// is room, when the partition goes away, and when the inbox is closed; no sooner.
func TestInboxIsBounded(t *testing.T) {
	for name, release := range map[string]func(b *Inbox){
		"taken":   func(b *Inbox) { b.takeAll() },
		"rewound": func(b *Inbox) { b.Rewind(0, 0) },
		"skipped": func(b *Inbox) { b.Skip(2) },
		"closed":  func(b *Inbox) { b.close() },
	} {
		for _, bound := range [][2]int{{2, 1 << 20}, {100, 20}} {
			synctest.Test(t, func(t *testing.T) {
				b := attached(bound[0], bound[1])
				if !b.offer(bare(1), always, never) || !b.offer(bare(2), always, never) {
					t.Fatal("there was room, and offer returned false")
				}
				if !b.offer(bare(2), always, never) {
					t.Fatal("what is there already needs no room")
				}
				done := make(chan bool, 1)
				go func() { done <- b.offer(bare(3), never, never) }()
				time.Sleep(10 * patience) // of the bubble: no time passes
				if n, _ := b.Len(); n != 2 || len(done) > 0 {
					t.Errorf("%s: there was no room, and offer went on", name)
				}
				release(b)
				if ok, want := <-done, name != "closed"; ok != want {
					t.Errorf("%s: offer returned %v", name, ok)
				}
			})
		}
	}
}

// TestG9_WaitingForRoomEnds: waiting for room ends by itself, however soon its time is up. It fails
// if the end can come between the start of the clock and the waiting, and then is lost: the main
// reader would wait for one partition, and all others for the main reader.
func TestG9_WaitingForRoomEnds(t *testing.T) {
	inboxes := NewInboxes(100, 1)
	var all sync.WaitGroup
	for _, b := range inboxes {
		all.Go(func() {
			for range 1000 {
				b.mu.Lock()
				if !b.closed {
					b.waitForRoom(time.Nanosecond)
				}
				b.mu.Unlock()
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("somebody waits for room for ever")
		inboxes.Close()
		<-ended
	}
}

// TestG9_AFullInboxHoldsUpNobody: while another partition has nothing to do, the main
// reader waits for a full inbox only shortly. Then the partition is away, and reads by
// itself the messages that were passed over. It fails if the main reader waits on, or if
// a message that was passed over is lost.
func TestG9_AFullInboxHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := attached(2, 1<<20)
		for seq := range uint64(5) {
			if !b.offer(bare(seq+1), always, never) {
				t.Fatal("the reading ended")
			}
		}
		if n, _ := b.Len(); n != 2 || !b.isAway() || b.missed != 5 {
			t.Fatalf("%d messages wait, away %v, passed over up to %d; want 2, true, 5", n, b.isAway(), b.missed)
		}
		if at := b.position(fold.Position{Seq: 5}); at.Seq != 0 {
			t.Errorf("position %v: nothing is known of what was passed over", at)
		}
		after, times := b.from()
		if after != 2 || len(b.left) != 1 {
			t.Errorf("its own reading begins after %d, and it was told %d times, want 2 and 1", after, len(b.left))
		}
		var got []uint64
		for seq := after + 1; ; seq++ {
			got = append(got, seqs(b.takeAll())...)
			if !b.fill(bare(seq), times, never) {
				t.Fatal("its own reading ended")
			}
			if !b.advance(fold.Position{Seq: seq}, times) {
				break
			}
		}
		b.offer(bare(6), always, never)
		got = append(got, seqs(b.takeAll())...)
		if len(got) != 6 || got[0] != 1 || got[5] != 6 || b.isAway() {
			t.Errorf("took %v, away %v, want 1 to 6", got, b.isAway())
		}
		if at := b.position(fold.Position{Seq: 6}); at.Seq != 6 {
			t.Errorf("position %v, want that of the reader of all", at)
		}
	})
}

// A partition that goes back while its own reader is under way gets nothing more from
// that reading: there would be a hole.
func TestInboxReadsAnew(t *testing.T) {
	b := attached(100, 1<<20)
	for seq := range uint64(6) {
		b.offer(bare(seq+1), never, never)
	}
	b.Rewind(3, 7)
	_, first := b.from()
	b.Rewind(1, 7)
	after, second := b.from()
	if b.fill(bare(5), first, never) || b.advance(fold.Position{Seq: 9}, first) {
		t.Error("a reading of the past goes on")
	}
	if after != 1 || !b.fill(bare(2), second, never) || !b.advance(fold.Position{Seq: 6}, second) || b.advance(fold.Position{Seq: 7}, second) {
		t.Errorf("the new reading begins after %d, want 1, and ends at 7", after)
	}
	b.Rewind(3, 7)
	if n, ok := b.begin(9, false); ok {
		t.Errorf("the reader of all begins at %d for a partition that is away", n)
	}
	if n, ok := b.begin(9, true); !ok || n != 3 {
		t.Errorf("the reader of all begins at %d, %v, want 3", n, ok)
	}
}

func TestInboxSkipsAndBegins(t *testing.T) {
	b := newInbox(100, 1<<20)
	if hungry, wanted := b.hungry(); hungry || wanted {
		t.Error("something is to be read for a partition that was not taken over")
	}
	b.Rewind(0, 0)
	if hungry, _ := b.hungry(); !hungry || !b.isAway() {
		t.Error("nothing is to be read for a partition that was taken over")
	}
	if at, ok := b.begin(7, true); at != 0 || !ok {
		t.Errorf("reading begins at %d, want 0: it has nothing yet", at)
	}
	for seq := range uint64(6) {
		b.offer(bare(seq+1), never, never)
	}
	b.offer(bare(4), never, never) // again
	b.Skip(2)
	if got := seqs(b.takeAll()); len(got) != 4 || got[0] != 3 || got[3] != 6 {
		t.Errorf("took %v, want 3 to 6", got)
	}
	if n, _ := b.Len(); n != 0 || b.bytes != 0 {
		t.Errorf("%d messages of %d bytes after all were taken", n, b.bytes)
	}
	if at, _ := b.begin(9, false); at != 9 {
		t.Errorf("reading begins at %d, want 9, up to where all was read", at)
	}
	b.close()
	if b.offer(bare(10), never, never) {
		t.Error("a closed inbox took a message")
	}
}

// TestG8_TakenIsBounded: a partition takes the messages that it applies next, and no more.
// It fails if it takes all: another inbox full is then read while it applies them.
func TestG8_TakenIsBounded(t *testing.T) {
	b := attached(100, 1<<20)
	for seq := range uint64(10) {
		b.offer(bare(seq+1), never, never)
	}
	list, empty := b.Take(nil, 4, 1<<20)
	if len(list) != 4 || empty {
		t.Errorf("took %v, empty %v, want 4 messages of 10", seqs(list), empty)
	}
	if list, empty = b.Take(list, 4, 1<<20); len(list) != 4 || empty {
		t.Errorf("took %v, want none, as there are 4", seqs(list))
	}
	if list, empty = b.Take(nil, 100, 25); len(list) != 3 || empty { // the third is over
		t.Errorf("took %v by bytes, want 5 to 7", seqs(list))
	}
	if list, empty = b.Take(nil, 100, 100); len(list) != 3 || !empty || b.bytes != 0 {
		t.Errorf("took %v, empty %v, %d bytes left, want the last 3", seqs(list), empty, b.bytes)
	}
}

// However takes and puts fall, each message is taken once and in order.
func TestInboxHandsOver(t *testing.T) {
	const n = 20_000
	b := attached(7, 1<<20)
	var wg sync.WaitGroup
	wg.Go(func() {
		for seq := range uint64(n) {
			b.offer(bare(seq+1), never, never)
		}
	})
	for next := uint64(1); next <= n; {
		<-b.arrived
		list, _ := b.Take(nil, 5, 1<<20)
		for _, m := range list {
			if m.Seq != next {
				t.Fatalf("took %d, want %d", m.Seq, next)
			}
			next++
		}
		if len(list) == 5 {
			b.Wake()
		}
	}
	wg.Wait()
}

// TestG1_APartitionGoesBackWhileTheReaderBegins: a partition goes back while the main
// reader begins again for the others, and so has no position yet. The partition reads for
// itself up to where the main reader begins.
//
// It fails if the partition comes back at its first message: then nobody reads the messages
// between that one and the beginning of the main reader for it.
func TestG1_APartitionGoesBackWhileTheReaderBegins(t *testing.T) {
	late, other := newInbox(10, 1000), newInbox(10, 1000)
	other.Rewind(4870, 0)
	r := Reader{inboxes: Inboxes{late, other}}
	if start, err := r.begin(t.Context(), 0); err != nil || start != 4870 {
		t.Fatalf("the main reader begins behind %d, want 4870", start)
	}
	late.Rewind(3700, r.Position().Seq)
	_, times := late.from()
	if late.advance(fold.Position{Seq: 3701}, times); !late.isAway() {
		t.Error("the partition came back at 3701")
	}
	if late.advance(fold.Position{Seq: 4870}, times); late.isAway() {
		t.Error("the partition is still away at 4870")
	}
}

// TestG1_APartitionComesBackWhileTheReaderBegins: a partition is away when the main reader
// asks where to begin, and has come back when that has decided to begin later.
//
// It fails if the partition does not go away again: then no reader delivers the messages in between.
func TestG1_APartitionComesBackWhileTheReaderBegins(t *testing.T) {
	b := newInbox(10, 1000)
	b.Rewind(3700, 0)
	if _, ok := b.begin(0, false); ok {
		t.Fatal("the partition is not away")
	}
	_, times := b.from()
	b.advance(fold.Position{Seq: 3701}, times)
	b.startsAfter(4870)
	if after, _ := b.from(); !b.isAway() || after > 3701 {
		t.Errorf("the partition is away: %v, and reads after %d, want true, and at most 3701", b.isAway(), after)
	}
}

// TestG1_ThePositionOfAPartitionThatComesBack: the main reader begins again, and the
// partition comes back with it, while its owner asks how far the log was read for it.
// Nothing was.
//
// It fails if the owner gets the former position of the main reader: it would commit that,
// and the messages before it would never be applied.
func TestG1_ThePositionOfAPartitionThatComesBack(t *testing.T) {
	b := newInbox(10, 1000)
	r := Reader{inboxes: Inboxes{b}}
	var owners sync.WaitGroup
	var wrong atomic.Uint64
	done := make(chan struct{})
	for range 8 { // they wait for the same locks, so that they lose time between two of them
		owners.Go(func() {
			for wrong.Load() == 0 {
				select {
				case <-done:
					return
				default:
					if at := r.PositionOf(0); at.Seq != 0 {
						wrong.Store(at.Seq)
					}
				}
			}
		})
	}
	for range 50_000 {
		b.Rewind(500, 1000)
		r.move(fold.Position{Seq: 1000})
		if _, err := r.begin(t.Context(), r.move(fold.Position{}).Seq); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	owners.Wait()
	if seq := wrong.Load(); seq != 0 {
		t.Errorf("the log was read up to %d for the partition, want nothing", seq)
	}
}

// TestG12_ThePositionHasItsStamp: the main reader begins behind a message that another reading has brought.
// The position of a partition has the stamp of that message, and of no other one.
func TestG12_ThePositionHasItsStamp(t *testing.T) {
	b := newInbox(10, 1000)
	r := Reader{inboxes: Inboxes{b}}
	b.Rewind(8, 0)
	_, times := b.from()
	r.saw(fold.Position{Seq: 10, Time: 1, Stamp: 1_000_001})
	b.advance(fold.Position{Seq: 10, Time: 1, Stamp: 1_000_001}, times) // it comes back
	for seq, want := range map[uint64]int64{9: 0, 10: 1_000_001, 11: 0} {
		r.move(fold.Position{Seq: seq})
		if at := r.PositionOf(0); at.Seq != seq || at.Stamp != want {
			t.Errorf("the main reader is at %d, and the position is %+v, want stamp %d", seq, at, want)
		}
	}
}

// TestG9_InboxesAreBounded: the inboxes of a process hold so many messages each, and 8 MiB of
// their bodies.
func TestG9_InboxesAreBounded(t *testing.T) {
	for _, b := range NewInboxes(2, 3) {
		if b.maxCount != 3 || b.maxBytes != inboxBytes {
			t.Errorf("%d messages of %d bytes", b.maxCount, b.maxBytes)
		}
	}
}

// TestTheReaderGoesBackForHalfOfAll: the main reader reads anew what one partition in two waits
// for. For fewer it does not: they read for themselves.
func TestTheReaderGoesBackForHalfOfAll(t *testing.T) {
	for _, tt := range []struct {
		all, away int
		want      bool
	}{{3, 0, false}, {3, 1, false}, {3, 2, true}, {4, 1, false}, {4, 2, true}, {1, 1, true}} {
		r := &Reader{inboxes: NewInboxes(tt.all, 10)}
		for i, b := range r.inboxes {
			b.Rewind(0, 0)
			if b.begin(0, true); i < tt.away {
				b.Rewind(0, 0)
			}
		}
		if got := r.mostAreHungry(); got != tt.want {
			t.Errorf("%d of %d partitions wait: %t", tt.away, tt.all, got)
		}
	}
}
