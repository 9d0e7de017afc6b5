package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed18712806/lapse/sink/wire"
)

// publishesWarnings reports whether lapse publishes warnings. While it does not, the model requires
// none, and a warning in the stream is one that must not be there.
const publishesWarnings = true

// Warning is a warning that must exist: that a version will expire.
type Warning struct {
	Name
	Document
	Seconds  int32 // the TTL that counts; 0 if an absolute deadline does
	Deadline wire.Time
	Bare     bool  // it has no document
	Before   int32 // how long before the deadline, in seconds
}

// At is the instant of the warning.
func (w Warning) At() wire.Time { return w.Deadline - wire.Time(w.Before)*1000 }

// ID returns the ce-id of the warning.
func (w Warning) ID() string {
	return fmt.Sprintf("%s/%s/expiring/%d/%d", w.Name, w.Etag, w.Before, int64(w.Deadline))
}

// expect notes when a version that was just written expires, and when its warnings fall due.
func (m *Model) expect(name Name, d Document, deadline wire.Time) {
	m.expire.add(name, deadline)
	for _, w := range m.warningsOf(name, d) {
		m.remind.add(name, w.At())
	}
}

// warn records the warnings that log time has reached. A version that expires at
// this log time too is still there.
func (m *Model) warn() {
	for _, w := range m.warningsDue(m.now) {
		m.Warnings = append(m.Warnings, w)
		m.notices[w.Name] = append(m.notices[w.Name], warningOf(w.ID()))
	}
	m.warned = m.now
}

// warningsOf returns the warnings of a version that are still to be recorded, under the present
// configuration. There is none at or before the version's write, or the configuration that made its
// deadline or the warning count.
func (m *Model) warningsOf(name Name, d Document) (all []Warning) {
	deadline, seconds, ok := m.deadline(name, d)
	if !ok {
		return nil
	}
	c := m.collections[name.Collection]
	if c.Paused {
		return nil
	}
	for _, before := range c.WarnBefore {
		w := Warning{Name: name, Document: d, Seconds: seconds, Deadline: deadline, Bare: c.Bare, Before: before}
		if w.At() > max(m.warned, d.Ts, c.Since, c.WarnSince) {
			all = append(all, w)
		}
	}
	return all
}

// warningsDue returns the warnings that fall due after those that were recorded, up to an instant.
func (m *Model) warningsDue(now wire.Time) (due []Warning) {
	if !m.warns {
		return nil
	}
	for _, name := range m.remind.until(now) {
		d, exists := m.docs[name]
		if !exists {
			continue
		}
		for _, w := range m.warningsOf(name, d) {
			m.remind.add(name, w.At())
			if w.At() <= now {
				due = append(due, w)
			}
		}
	}
	slices.SortFunc(due, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.At(), b.At()), cmp.Compare(a.Etag, b.Etag))
	})
	return due
}

// compareWarning compares a warning in the stream with those that the model requires.
func (m *Model) compareWarning(d *Diff, want expected, msg Message, seen map[string]uint64) {
	id := msg.Header.Get("ce-id")
	if before, twice := seen[warningOf(id)]; twice {
		d.add(Twice, "warning %s: events %d and %d", id, before, msg.Seq)
		return
	}
	seen[warningOf(id)] = msg.Seq
	w, ok := want.warnings[id]
	if !ok {
		if due, there := want.warningsDue[id]; there {
			d.add(Early, "warning %s: event %d was published before the log reached %s", id, msg.Seq, due.At())
			return
		}
		d.add(Unexpected, "warning %s: event %d on %s", id, msg.Seq, msg.Subject)
		return
	}
	m.compareNotice(d, msg, notice{
		what: "warning " + id, subject: m.set.Prefix.Expired(w.Collection, w.Name.ID), kind: "expiring",
		Name: w.Name, Document: w.Document, bare: w.Bare, seconds: w.Seconds, at: w.At(),
		members: map[string]any{"expiresAt": w.Deadline.String(), "before": w.Before},
	})
}

// compareWarnings adds the warnings that are missing at an instant.
func (d *Diff) compareWarnings(want expected, seen map[string]uint64) {
	for id, w := range want.warnings {
		if _, there := seen[warningOf(id)]; !there {
			d.add(Missing, "warning %s, due at %s", id, w.At())
		}
	}
	for id, w := range want.warningsDue {
		if _, there := seen[warningOf(id)]; !there {
			d.add(Missing, "warning %s, due at %s; the log has not reached that instant (a tick is missing)", id,
				w.At())
		}
	}
}

func warningOf(id string) string { return "warning " + id }
