package ttlrules_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestI1I3_CutsAndInstantsAgreeWithTheModel steps a document through every
// millisecond of random histories, many of them with two changes in one
// millisecond, and holds three answers against the model's: the instant of expiry,
// the cut through the index, and both again from a history that has epochs in the
// future of now.
//
// It fails if a comparison in ExpiredAt, Expired or Cuts loses or gains its "or
// equal", if Cuts counts an epoch that has not begun or forgets one that has ended,
// or if the expiry names another TTL or another cause.
func TestI1I3_CutsAndInstantsAgreeWithTheModel(t *testing.T) {
	t.Run("small world, every millisecond", func(t *testing.T) {
		every := small.everyMillisecond()
		rapid.Check(t, func(t *rapid.T) {
			d, changes := small.doc(t), small.changes(t)
			agree(t, d, changes, every)
		})
	})
	t.Run("large world, where anything can happen", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			d, changes := large.doc(t), large.changes(t)
			agree(t, d, changes, large.instants(d, changes))
		})
	})
}

func agree(t *rapid.T, d doc, changes []change, instants []int64) {
	whole := history(changes, math.MaxInt64)
	var known ttlrules.History // what is known at now
	applied := 0
	m := model{doc: d}
	for _, now := range instants {
		m.step(now, changes)
		for applied < len(changes) && changes[applied].at <= now {
			c := changes[applied]
			known = known.With(c.at, c.seq, c.def)
			applied++
		}
		if now < d.ts {
			continue // not written yet
		}
		for name, h := range map[string]ttlrules.History{"known": known, "whole": whole} {
			if got := h.Expired(d.clock(), now); got != m.expired {
				t.Fatalf("%+v under the %s history %v at %d: Expired is %t, the model says %t", d, name, changes, now,
					got, m.expired)
			}
			if got := underCut(h, d, now); got != m.expired {
				t.Fatalf("%+v under the %s history %v at %d: cuts %+v say expired %t, the model says %t", d, name,
					changes, now, h.Cuts(now), got, m.expired)
			}
			if x, ok := h.ExpiredAt(d.clock()); m.expired && (!ok || x != m.expiry) {
				t.Fatalf("%+v under the %s history %v at %d: ExpiredAt is %+v, %t, the model says %+v", d, name,
					changes, now, x, ok, m.expiry)
			}
		}
	}
	if x, ok := whole.ExpiredAt(d.clock()); ok != m.expired {
		t.Fatalf("%+v under %v: ExpiredAt is %+v, %t, the model lived to see %t", d, changes, x, ok, m.expired)
	}
}

// TestI3_ScoresAroundTheCut takes the cut of a random history at a random instant
// and makes the documents whose scores lie on it and a millisecond to either side.
// Those on it and under it are expired, the one above is not.
//
// It fails if either cut is off by a millisecond, whichever way.
func TestI3_ScoresAroundTheCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom([]world{small, large}).Draw(t, "world")
		changes := w.changes(t)
		h := history(changes, math.MaxInt64)
		now := w.instant(t, "now")
		cuts := h.Cuts(now)

		for off := int64(-1); off <= 1; off++ {
			if cuts.Inherit != ttlrules.NoCut {
				ts := cuts.Inherit + off
				if got := h.Expired(ttlrules.Clock{Ts: ts}, now); got != (off <= 0) {
					t.Errorf("%v at %d: inherit cut is %d, but a document of ts %d has expired %t", changes, now,
						cuts.Inherit, ts, got)
				}
			}
			if cuts.Own != ttlrules.NoCut {
				item := ttlrules.TTL(w.ttls[len(w.ttls)-1])
				deadline := cuts.Own + off
				if got := h.Expired(ttlrules.Clock{Ts: deadline - 1000*int64(item), TTL: item},
					now); got != (off <= 0) {
					t.Errorf("%v at %d: own cut is %d, but a document of deadline %d has expired %t", changes, now,
						cuts.Own, deadline, got)
				}
			}
		}
		if cuts.Inherit == ttlrules.NoCut && h.Expired(ttlrules.Clock{Ts: w.start - 1000*ttlrules.MaxSeconds}, now) {
			t.Errorf("%v at %d: there is no inherit cut, but a very old document has expired", changes, now)
		}
		if cuts.Own == ttlrules.NoCut && h.Expired(ttlrules.Clock{Ts: w.start - 1000*ttlrules.MaxSeconds, TTL: 1},
			now) {
			t.Errorf("%v at %d: there is no own cut, but a very old document has expired", changes, now)
		}
	})
}

// TestG5_ExpiredIsFinal applies random changes one by one. Whatever is expired at
// the instant of a change is expired at every later instant under every longer
// history, of the same instant, seconds and cause, so that its event is the same
// whenever it is sent. The cuts never fall.
//
// It fails if ExpiredAt judges by the current default alone, takes the latest epoch
// rather than the first, or if a cut forgets the epochs that have ended.
func TestG5_ExpiredIsFinal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom([]world{small, large}).Draw(t, "world")
		docs := make([]doc, 10)
		for i := range docs {
			docs[i] = w.doc(t)
		}
		changes := w.changes(t)
		now := w.start
		var h ttlrules.History
		cuts := h.Cuts(now)
		expired := map[doc]ttlrules.Expiry{}
		look := func(at int64) {
			now = at
			after := h.Cuts(now)
			if after.Inherit < cuts.Inherit || after.Own < cuts.Own {
				t.Fatalf("cuts fell from %+v to %+v at %d, with %v", cuts, after, now, changes)
			}
			cuts = after
			for _, d := range docs {
				x, ok := h.ExpiredAt(d.clock())
				was, had := expired[d]
				if had && (!ok || x != was || !h.Expired(d.clock(), now) || !underCut(h, d, now)) {
					t.Fatalf("%+v expired with %+v, but at %d it is %+v, %t, with %v", d, was, now, x, ok, changes)
				}
				if ok && x.At <= now {
					expired[d] = x
				}
			}
		}
		for _, c := range changes {
			// Just before the change, at its instant before it, and after it.
			look(max(now, c.at-1))
			look(c.at)
			h = h.With(c.at, c.seq, c.def)
			look(c.at)
		}
		for _, at := range []int64{now + 1, now + 1000, w.horizon, math.MaxInt64} {
			look(at)
		}
	})
}

// TestI4_SettledChangesNothingForTheUnexpired settles a random history at a random
// instant, as a reaper does, and makes more changes on both. To every document that
// was not expired then, both say the same for ever.
//
// It fails if Settled keeps another epoch than the last, or moves its Since.
func TestI4_SettledChangesNothingForTheUnexpired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom([]world{small, large}).Draw(t, "world")
		d, changes := w.doc(t), w.changes(t)
		before := rapid.IntRange(0, len(changes)).Draw(t, "changes before settling")
		h := history(changes[:before], math.MaxInt64)
		now := w.instant(t, "now")
		if before > 0 {
			now = max(now, changes[before-1].at)
		}
		if h.Expired(d.clock(), now) {
			return // gone by then
		}
		s := h.Settled()
		if len(s) > 1 || s.Current() != h.Current() {
			t.Fatalf("%v settled is %v", h, s)
		}
		for _, c := range changes[before:] {
			at := max(c.at, now)
			h, s = h.With(at, c.seq, c.def), s.With(at, c.seq, c.def)
		}
		x, ok := h.ExpiredAt(d.clock())
		y, okSettled := s.ExpiredAt(d.clock())
		if ok != okSettled || x != y {
			t.Fatalf("%+v, unexpired at %d: %+v, %t under %v, but %+v, %t under %v", d, now, x, ok, h, y, okSettled, s)
		}
		for _, later := range w.instants(d, changes) {
			if later >= now && underCut(h, d, later) != underCut(s, d, later) {
				t.Fatalf("%+v, unexpired at %d: the cuts at %d are %+v under %v, but %+v under %v", d, now, later,
					h.Cuts(later), h, s.Cuts(later), s)
			}
		}
	})
}

// TestNextDueIsTheLeastNow holds FirstDue against Cuts: at the instant that it names
// the cut has reached the score, a millisecond before it had not.
//
// It fails if FirstDue takes an epoch that Cuts does not, or another end of it.
func TestNextDueIsTheLeastNow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom([]world{small, large}).Draw(t, "world")
		changes := w.changes(t)
		h := history(changes, math.MaxInt64)
		score, inherit := w.instant(t, "score"), rapid.Bool().Draw(t, "inherit")
		at, ok := h.FirstDue(score, inherit)
		if !ok {
			if c := cut(h, inherit, math.MaxInt64); score <= c {
				t.Fatalf("score %d, inherit %t is never due under %v, but the last cut is %d", score, inherit, h, c)
			}
			return
		}
		if c := cut(h, inherit, at); score > c {
			t.Fatalf("score %d, inherit %t is due at %d under %v, but the cut then is %d", score, inherit, at, h, c)
		}
		if c := cut(h, inherit, at-1); score <= c {
			t.Fatalf("score %d, inherit %t is due at %d under %v, but a millisecond before the cut was %d", score,
				inherit, at, h, c)
		}
	})
}

// TestWithNeverModifies branches random histories off each other, and looks at the
// old ones again at the end: a history that is handed out is a value.
//
// It fails if With appends to its receiver's array.
func TestWithNeverModifies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct{ h, copied ttlrules.History }
		versions := []version{{}}
		for i, c := range small.changes(t) {
			from := versions[rapid.IntRange(0, len(versions)-1).Draw(t, "from")].h
			// Room behind the end is where a careless append would write.
			from = slices.Grow(from, 4)
			versions = append(versions, version{from, slices.Clone(from)})
			next := from.With(c.at, uint64(i), c.def)
			versions = append(versions, version{next, slices.Clone(next)})
			other := from.With(c.at, uint64(100+i), small.defaultTTL.Draw(t, "another default"))
			versions = append(versions, version{other, slices.Clone(other)})
			versions = append(versions, version{from.Settled(), slices.Clone(from.Settled())})
		}
		for _, v := range versions {
			if !slices.Equal(v.h, v.copied) {
				t.Fatalf("a history was %v and has become %v", v.copied, v.h)
			}
		}
	})
}
