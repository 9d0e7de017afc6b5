package oracle

import (
	"cmp"
	"slices"

	"github.com/seed18712806/lapse/sink/wire"
)

// expired records the event of a document that has expired.
func (m *Model) expired(e Expiry) {
	m.Expiries = append(m.Expiries, e)
	m.outputs[e.Name] = append(m.outputs[e.Name], expiryOf(e.ID()))
	if len(m.notices[e.Name]) > 0 {
		m.notices[e.Name] = append(m.notices[e.Name], expiryOf(e.ID()))
	}
}

// Held is the event that a paused collection holds back for a document that has expired; ok is false if there is none.
func (m *Model) Held(name Name) (e Expiry, ok bool) {
	e, ok = m.held[name]
	return e, ok
}

// toPublish returns the documents that are due at an instant, but for those of paused collections.
func (m *Model) toPublish(now wire.Time) []Expiry {
	return slices.DeleteFunc(m.due(now), func(e Expiry) bool { return m.collections[e.Collection].Paused })
}

// resume records the events that were held back in a collection.
func (m *Model) resume(collection string) {
	var due []Expiry
	for name, e := range m.held {
		if name.Collection == collection {
			due = append(due, e)
			delete(m.held, name)
		}
	}
	slices.SortFunc(due, func(a, b Expiry) int { return cmp.Compare(a.Etag, b.Etag) })
	for _, e := range due {
		m.expired(e)
	}
}

// put stores a version. In a paused collection it first records the event of a document that it takes the place of.
func (m *Model) put(name Name, next Document) {
	if e, there := m.held[name]; there {
		delete(m.held, name)
		m.expired(e)
	}
	m.docs[name] = next
}

// pauseAll pauses all collections that are configured.
func (m *Model) pauseAll() {
	for name, c := range m.collections {
		if c.Etag != 0 && !c.Paused {
			c.Paused, c.Altered = true, 0
			m.collections[name] = c
		}
	}
}

// mostAltered is how many changes of the default and of eventBody a paused collection takes.
const mostAltered = 32

// pause completes the next configuration of a collection with what depends on whether it is paused; ok is false if it
// cannot be changed before it is resumed.
func (c Collection) pause(next Collection) (Collection, bool) {
	altered := 0
	if next.Default != c.Default {
		altered++
	}
	if next.Bare != c.Bare {
		altered++
	}
	switch {
	case !next.Paused:
		next.Altered = 0
	case !c.Paused:
		next.Altered = altered
	case altered > 0 && c.Altered >= mostAltered:
		return next, false
	default:
		next.Altered = c.Altered + altered
	}
	return next, true
}
