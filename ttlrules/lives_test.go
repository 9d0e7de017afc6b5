package ttlrules_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// histories is how many random histories TestI1toI4_KeptAndAbsoluteClocks plays.
var histories = flag.Int("histories", 20_000, "how many random histories of kept and absolute clocks to play")

// version is a version of a document as the model sees it. The model knows the present default
// alone: neither histories nor cuts.
type version struct {
	ts, begin, abs, cap int64
	item                ttlrules.TTL
	seq                 uint64
	expired             bool
	expiry              ttlrules.Expiry
	bands               [2]uint64 // the sequences from which on the histories count for it; 0 in the first band
}

// deadline is the deadline of the contract, and the seconds that count.
func (v *version) deadline(def ttlrules.Default) (at int64, seconds int32, ok bool) {
	switch {
	case def == 0:
		return 0, 0, false
	case v.abs != 0:
		return v.abs, 0, true
	case v.cap != 0 && (v.item <= 0 || v.begin+1000*int64(v.item) > v.cap):
		return v.cap, 0, true
	case v.item > 0:
		return v.begin + 1000*int64(v.item), int32(v.item), true
	case v.item == 0 && def > 0:
		return v.begin + 1000*int64(def), int32(def), true
	}
	return 0, 0, false
}

// live lets the version live until an instant, at which a message came (0: none).
func (v *version) live(def ttlrules.Default, until int64, seq uint64) {
	at, seconds, ok := v.deadline(def)
	if at = max(at, v.ts); v.expired || !ok || at > until {
		return
	}
	if seq != 0 {
		at = until
	}
	v.expired, v.expiry = true, ttlrules.Expiry{At: at, TTL: seconds, Seq: seq}
}

func (v *version) clock() ttlrules.Clock {
	c := ttlrules.Clock{Ts: v.ts, TTL: v.item, Absolute: v.abs, NotAfter: v.cap, Seq: v.seq}
	if v.begin != v.ts {
		c.Kept = v.begin
	}
	return c
}

// The two histories of the rules: one is settled only where it has to be, and one whenever it may be.
const (
	lazy = iota
	settled
)

// life is one random history of a collection with a few documents, played by the model and by
// two histories of the rules.
type life struct {
	*rand.Rand
	now    int64
	seq    uint64
	def    ttlrules.Default
	docs   [3]*version
	rules  [2]ttlrules.History
	banded int // versions in a band
	held   int // writes that had to wait until the history was settled
	ran    int // versions that were expired at their own ts
	story  []string
}

// play plays a history; it returns a text that says what is wrong, empty if nothing is.
func (l *life) play() string {
	l.now = 100_000
	for range 4 + l.IntN(12) {
		if l.IntN(3) > 0 {
			l.now += []int64{1, 499, 500, 501, 999, 1000, 1001, 2000}[l.IntN(8)]
		}
		for _, v := range l.docs {
			if v != nil {
				v.live(l.def, l.now, 0)
			}
		}
		if wrong := l.compare(); wrong != "" {
			return wrong
		}
		l.seq++
		switch l.IntN(5) {
		case 0, 1:
			l.change([]ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 1, 2, 3}[l.IntN(5)])
		case 2, 3:
			l.write(l.IntN(len(l.docs)))
		case 4:
			l.reap()
		}
		if wrong := l.compare(); wrong != "" {
			return wrong
		}
	}
	return ""
}

func (l *life) change(def ttlrules.Default) {
	l.tell("default %d", def)
	l.def = def
	for _, v := range l.docs {
		if v != nil {
			v.live(def, l.now, l.seq)
		}
	}
	for i := range l.rules {
		l.rules[i] = l.rules[i].With(l.now, l.seq, def)
	}
}

// write writes a version: one that begins anew, or is touched, or keeps the clock.
func (l *life) write(i int) {
	old := l.docs[i]
	if old != nil && old.expired {
		old = nil
	}
	v := &version{ts: l.now, begin: l.now, seq: l.seq, item: []ttlrules.TTL{ttlrules.Inherit, ttlrules.Never, 1, 2,
		3}[l.IntN(5)]}
	how := l.IntN(5)
	if old != nil && how > 0 { // touch, or a patch that names neither ttl nor deadline
		v.abs, v.cap = old.abs, old.cap
		if l.IntN(2) == 0 {
			v.item = old.item
		}
	}
	if how >= 3 {
		v.abs, v.cap = []int64{0, l.now + 1, l.now + 500, l.now + 2000}[l.IntN(4)], 0
	}
	if how == 2 && v.item > 0 {
		v.abs, v.cap = 0, l.now+[]int64{1, 500, 1000, 2000}[l.IntN(4)]
	}
	if old != nil && l.IntN(2) == 0 {
		v.begin = old.begin
	}
	l.tell("document %d: %+v", i, *v)
	v.live(l.def, l.now, l.seq)
	l.docs[i] = v
	if v.expired {
		l.ran++
	}
	l.admit(v, lazy, func() {
		l.held++
		l.reap()
		if l.docs[i] == nil { // it was expired at once
			l.docs[i] = v
		}
	})
	l.admit(v, settled, func() { l.settle(v) })
}

// admit lets a version come to the index, in a band where it has to be, by one of the histories. Or it has to wait.
func (l *life) admit(v *version, which int, wait func()) {
	h := l.rules[which]
	if h.Admits(v.clock()) {
		return
	}
	if _, in := v.clock().Score(); in != ttlrules.ByInherit {
		wait()
		return
	}
	l.banded++
	if v.bands[which] = h[len(h)-1].Seq; !h.From(v.bands[which]).Admits(v.clock()) {
		l.tell("refused from %d on", v.bands[which])
		v.expired = !v.expired // so that the comparison fails
	}
}

// reap removes what is expired, and settles.
func (l *life) reap() {
	l.tell("reap")
	for i, v := range l.docs {
		if v != nil && v.expired {
			l.docs[i] = nil
		}
	}
	for i := range l.rules {
		l.rules[i] = l.rules[i].Settled()
	}
}

// settle settles a history before a version is written, if nothing else is expired.
func (l *life) settle(but *version) {
	for i, v := range l.docs {
		if v != nil && v != but && v.expired {
			l.docs[i] = nil
		}
	}
	l.rules[settled] = l.rules[settled].Settled()
}

// compare holds the answers of the rules against the model's.
func (l *life) compare() string {
	if !slices.ContainsFunc(l.docs[:], func(v *version) bool { return v != nil && v.expired }) {
		l.rules[settled] = l.rules[settled].Settled()
	}
	for i, v := range l.docs {
		if v == nil {
			continue
		}
		c := v.clock()
		score, in := c.Score()
		for which, h := range l.rules {
			name := []string{"lazy", "settled"}[which]
			x, ok := h.ExpiredAt(c)
			if got := h.Expired(c, l.now); got != v.expired {
				return fmt.Sprintf("document %d at %d, %s %v: Expired is %t", i, l.now, name, h, got)
			}
			if v.expired && (!ok || x != v.expiry) {
				return fmt.Sprintf("document %d at %d, %s %v: ExpiredAt is %+v, want %+v", i, l.now, name, h, x,
					v.expiry)
			}
			h = h.From(v.bands[which])
			if in == ttlrules.NotIndexed {
				if v.expired {
					return fmt.Sprintf("document %d is expired, and in no index", i)
				}
				continue
			}
			if under := score <= cut(h, in == ttlrules.ByInherit, l.now); under != v.expired {
				return fmt.Sprintf("document %d at %d, %s %v: score %d is under the cut: %t", i, l.now, name, h, score,
					under)
			}
			if at, due := h.FirstDue(score, in == ttlrules.ByInherit); due != ok || due && !v.expired && at != x.At {
				return fmt.Sprintf("document %d at %d, %s %v: FirstDue is %d, %t, ExpiredAt %+v, %t", i, l.now, name, h,
					at, due, x, ok)
			}
		}
	}
	return ""
}

func (l *life) tell(format string, args ...any) {
	if l.story != nil {
		l.story = append(l.story, fmt.Sprintf("%d (seq %d): ", l.now, l.seq)+fmt.Sprintf(format, args...))
	}
}

// TestI1toI4_KeptAndAbsoluteClocks plays random histories of configurations and of writes that
// keep a clock, or have an absolute deadline, or a limit of their TTL, or are touched, often several in a millisecond.
// After each message the rules must agree with the model about every document, whether the
// history was settled or not. -histories sets their number.
//
// It fails if an epoch that ended before a version was written counts for it, if Admits lets
// such a version in, if a score is not the later of deadline and ts, or if the cause of an
// expiry at the version's own ts is not the later of write and configuration.
func TestI1toI4_KeptAndAbsoluteClocks(t *testing.T) {
	held, ran, banded := 0, 0, 0
	for seed := range uint64(*histories) {
		l := &life{Rand: rand.New(rand.NewPCG(seed, 1))}
		if wrong := l.play(); wrong != "" {
			again := &life{Rand: rand.New(rand.NewPCG(seed, 1)), story: []string{}}
			again.play()
			for _, line := range again.story {
				t.Log(line)
			}
			t.Fatalf("seed %d: %s", seed, wrong)
		}
		held, ran, banded = held+l.held, ran+l.ran, banded+l.banded
	}
	t.Logf("%d writes had to wait, %d versions were expired when they were written, and %d came to a band", held, ran,
		banded)
	if held == 0 || ran < *histories/100 || banded < *histories/1000 {
		t.Error("too few to show anything")
	}
}
