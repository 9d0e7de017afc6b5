package shard

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

// bare is a message of 10 bytes.
func bare(seq uint64) *fold.Message {
	return &fold.Message{Position: fold.Position{Seq: seq, Time: int64(100 * seq)}, Body: make([]byte, 10)}
}

// wanted is a queue whose owner needs all messages, and the number of the reading that brings them.
func wanted(most int) (q *Queue, reading uint64) {
	q = NewQueue(most)
	q.Rewind(0)
	_, reading, _ = q.begin()
	return q, reading
}

// bring is what a reading does with messages: it puts them in, and passes them.
func (q *Queue) bring(reading uint64, seqs ...uint64) (goesOn bool) {
	for _, seq := range seqs {
		if !q.put(bare(seq), reading) || !q.passed(fold.Position{Seq: seq}, reading) {
			return false
		}
	}
	return true
}

// take takes the next messages, as an owner does that applies them.
func (q *Queue) take(most, bytes int) (list []*fold.Message, empty bool) {
	list, empty = q.Next(most, bytes)
	q.Applied(len(list))
	return list, empty
}

// takeAll are the sequences of all messages that are in the queue.
func (q *Queue) takeAll() []uint64 {
	list, _ := q.take(1<<30, 1<<30)
	return seqs(list)
}

func seqs(list []*fold.Message) (all []uint64) {
	for _, m := range list {
		all = append(all, m.Seq)
	}
	return all
}

// TestG9_TheQueueIsBounded: the reader waits for room, and goes on when there is some; its reading is over when the
// owner rewinds, the reading begins again, or the queue is closed. No sooner.
func TestG9_TheQueueIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		release func(q *Queue)
		goesOn  bool
		left    []uint64
	}{
		"one is taken":    {func(q *Queue) { q.take(1, 1<<30) }, true, []uint64{2, 3}},
		"one is skipped":  {func(q *Queue) { q.Skip(1) }, true, []uint64{2, 3}},
		"all are skipped": {func(q *Queue) { q.Skip(3) }, true, nil},
		"rewound":         {func(q *Queue) { q.Rewind(0) }, false, nil},
		"begins again":    {func(q *Queue) { q.Again() }, false, []uint64{1, 2}},
		"closed":          {func(q *Queue) { q.Close() }, false, []uint64{1, 2}},
	} {
		for _, large := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				most := 2
				if large {
					most = 100
				}
				q, reading := wanted(most)
				for _, seq := range []uint64{1, 2} {
					m := bare(seq)
					if large {
						m.Body = make([]byte, queueBytes/2)
					}
					if !q.put(m, reading) {
						t.Fatal("there was room, and the reading is over")
					}
				}
				done := make(chan bool, 1)
				go func() { done <- q.put(bare(3), reading) }()
				synctest.Wait()
				if n, _ := q.Waiting(); n != 2 || len(done) > 0 {
					t.Errorf("%s: there was no room, and the reader went on", name)
				}
				tt.release(q)
				if goesOn := <-done; goesOn != tt.goesOn {
					t.Errorf("%s: the reading goes on: %t", name, goesOn)
				}
				if left := q.takeAll(); !slices.Equal(left, tt.left) || q.bytes != 0 {
					t.Errorf("%s: %v were left, want %v; %d bytes are left now", name, left, tt.left, q.bytes)
				}
			})
		}
	}
}

// TestG8_TakenIsBounded: the owner takes the messages that it applies next, and no more: else another queue full is
// read while it applies them.
func TestG8_TakenIsBounded(t *testing.T) {
	q, reading := wanted(100)
	q.bring(reading, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	list, empty := q.take(4, 1<<20)
	if len(list) != 4 || empty {
		t.Errorf("took %v, empty %v, want 4 messages of 10", seqs(list), empty)
	}
	if list, empty = q.take(100, 25); len(list) != 3 || empty { // the third is over
		t.Errorf("took %v by bytes, want 5 to 7", seqs(list))
	}
	if n, oldest := q.Waiting(); n != 3 || oldest != 800 {
		t.Errorf("%d messages wait since %d", n, oldest)
	}
	if list, empty = q.take(100, 100); len(list) != 3 || !empty || q.bytes != 0 {
		t.Errorf("took %v, empty %v, %d bytes left, want the last 3", seqs(list), empty, q.bytes)
	}
	if n, oldest := q.Waiting(); n != 0 || oldest != 0 {
		t.Errorf("%d messages wait since %d", n, oldest)
	}
}

// TestG1_TheQueueHandsOver: however takes and puts fall, each message is taken once and in order, and the owner is
// woken for it.
func TestG1_TheQueueHandsOver(t *testing.T) {
	const n = 20_000
	q, reading := wanted(7)
	var wg sync.WaitGroup
	wg.Go(func() {
		for seq := range uint64(n) {
			q.bring(reading, seq+1)
		}
	})
	defer wg.Wait()
	defer q.Close()
	timeout := time.After(limit)
	for next := uint64(1); next <= n; {
		select {
		case <-q.Arrived():
		case <-timeout:
			t.Fatalf("nobody is woken for message %d", next)
		}
		at := q.ReadUpTo()
		list, empty := q.take(5, 1<<20)
		for _, m := range list {
			if m.Seq != next {
				t.Fatalf("took %d, want %d", m.Seq, next)
			}
			next++
		}
		if empty && at.Seq >= next {
			t.Fatalf("the log was read up to %d, and message %d is not there", at.Seq, next)
		}
		if !empty {
			q.Wake()
		}
	}
}

// TestG1_NothingFromBeforeARewind: a reading that has begun before the owner goes back puts nothing in any more, and
// moves no position: there would be a hole. The position is not known until the next reading has brought something.
//
// Goes red if a message, or a position, of the former reading counts.
func TestG1_NothingFromBeforeARewind(t *testing.T) {
	for name, goesBack := range map[string]func(q *Queue){
		"once":             func(q *Queue) { q.Rewind(3) },
		"twice":            func(q *Queue) { q.Rewind(5); q.Rewind(3) },
		"and begins again": func(q *Queue) { q.Rewind(3); q.Again() },
	} {
		q, first := wanted(100)
		q.bring(first, 1, 2, 3, 4, 5, 6)
		goesBack(q)
		if q.bring(first, 7) || q.passed(fold.Position{Seq: 8}, first) {
			t.Errorf("%s: a reading of before goes on", name)
		}
		q.truncate(errors.New("truncated"), first)
		if n, _ := q.Waiting(); n != 0 || q.ReadUpTo() != (fold.Position{}) || len(q.rewound) != 1 ||
			q.Truncated() != nil || !q.IsWanted() {
			t.Errorf("%s: %d messages are left, read up to %+v, truncated: %v", name, n, q.ReadUpTo(), q.Truncated())
		}
		after, second, ok := q.begin()
		if after != 3 || !ok || q.ReadUpTo().Seq != 0 {
			t.Errorf("%s: the next reading begins after %d", name, after)
		}
		if q.bring(first, 4) || !q.bring(second, 4, 5) || q.ReadUpTo().Seq != 5 {
			t.Errorf("%s: read up to %d", name, q.ReadUpTo().Seq)
		}
		if got := q.takeAll(); !slices.Equal(got, []uint64{4, 5}) {
			t.Errorf("%s: took %v", name, got)
		}
	}
}

// TestG1_AReadingBeginsAgain: a reading that was interrupted begins again behind what it has brought, and what was
// brought stays, also while nothing is read.
func TestG1_AReadingBeginsAgain(t *testing.T) {
	q, first := wanted(100)
	q.bring(first, 1, 2)
	q.passed(fold.Position{Seq: 4}, first) // by ticks
	q.Again()
	if at := q.ReadUpTo(); at.Seq != 4 || q.bring(first, 5) {
		t.Errorf("read up to %d, and the reading goes on", at.Seq)
	}
	after, second, ok := q.begin()
	if after != 4 || !ok || q.ReadUpTo() != (fold.Position{}) {
		t.Errorf("the next reading begins after %d, and the log was read up to %d", after, q.ReadUpTo().Seq)
	}
	q.put(bare(4), second) // again
	q.bring(second, 5, 6)
	if after, _, _ := q.begin(); after != 6 {
		t.Errorf("a reading after a lost connection begins after %d", after)
	}
	if got := q.takeAll(); !slices.Equal(got, []uint64{1, 2, 5, 6}) {
		t.Errorf("took %v", got)
	}
}

// TestG1_SkippedMessagesDoNotCome: what another owner has applied is not handed out, also if it comes later.
func TestG1_SkippedMessagesDoNotCome(t *testing.T) {
	q, reading := wanted(100)
	q.bring(reading, 1, 2, 3)
	q.Skip(2)
	q.Skip(1)
	if n, oldest := q.Waiting(); n != 1 || oldest != 300 || q.bytes != 10 {
		t.Errorf("%d messages are left, of %d bytes", n, q.bytes)
	}
	q.Skip(5)
	if !q.bring(reading, 4, 5, 6) || q.ReadUpTo().Seq != 6 {
		t.Errorf("read up to %d", q.ReadUpTo().Seq)
	}
	if got := q.takeAll(); !slices.Equal(got, []uint64{6}) {
		t.Errorf("took %v", got)
	}
	q.Skip(9)
	if after, _, _ := q.begin(); after != 9 {
		t.Errorf("the next reading begins after %d", after)
	}
}

// TestG7_ATruncatedLogIsNotRead: nobody reads before the owner has taken the shard over, and while it has to do so
// anew. It is woken for that.
func TestG7_ATruncatedLogIsNotRead(t *testing.T) {
	q := NewQueue(10)
	if _, _, ok := q.begin(); ok || q.IsWanted() {
		t.Error("something is read for an owner that has not taken the shard over")
	}
	q.Rewind(3)
	_, reading, ok := q.begin()
	if !ok || !q.IsWanted() {
		t.Error("nothing is read for an owner that has taken the shard over")
	}
	why := errors.New("truncated")
	q.truncate(why, reading)
	if _, _, ok := q.begin(); ok || q.IsWanted() || q.Truncated() != why || len(q.arrived) != 1 {
		t.Errorf("the owner is told: %v", q.Truncated())
	}
	q.Skip(7) // which does not tell that the owner has found a way to go on
	q.Again()
	if _, _, ok := q.begin(); ok || q.Truncated() != why {
		t.Error("something is read before the owner has rewound")
	}
	q.Rewind(8)
	if after, _, ok := q.begin(); !ok || after != 8 || q.Truncated() != nil {
		t.Errorf("it is read after %d, and truncated: %v", after, q.Truncated())
	}
}

// TestG1_TheQueueAndTheOwner: whatever the reader and the owner do, the owner takes the messages behind the offset that
// it has asked for, each once and in order, and the position never passes one that it has not got: see Queue.
func TestG1_TheQueueAndTheOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const end = 30 // of the log; every third message is a tick
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		q := NewQueue(end)
		var reading, last uint64 // of the reader
		var offset uint64        // of the owner: all is taken up to there
		begun := false
		for range 300 {
			switch rng.IntN(20) {
			case 0: // the owner takes over
				offset = rng.Uint64N(end)
				q.Rewind(offset)
			case 1:
				q.Again()
			case 2: // another owner has gone on
				offset += rng.Uint64N(end + 1 - offset)
				q.Skip(offset)
			case 3, 4:
				last, reading, begun = q.begin()
			case 5, 6, 7, 8: // the owner takes
				at := q.ReadUpTo().Seq
				list, empty := q.take(1+rng.IntN(4), 1<<20)
				for _, m := range list {
					next := offset + 1
					if next%3 == 0 {
						next++
					}
					if m.Seq != next {
						t.Fatalf("took %d, want %d", m.Seq, next)
					}
					offset = m.Seq
				}
				if empty && at > offset+1 {
					t.Fatalf("the log was read up to %d, and the owner got all up to %d", at, offset)
				}
				if empty {
					offset = max(offset, at)
				}
			default: // the reader goes on
				if begun = begun && last < end; !begun {
					continue
				}
				last++
				if last%3 != 0 {
					begun = q.put(bare(last), reading)
				}
				if rng.IntN(10) == 0 {
					q.Again()
				}
				begun = begun && q.passed(fold.Position{Seq: last}, reading)
			}
		}
	})
}
