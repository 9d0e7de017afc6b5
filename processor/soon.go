package processor

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/ttlrules"
)

// soon are documents of a partition that were looked up before they fall due, so that
// nothing has to be read when they do. They are as they are stored: only the partition's
// owner changes documents, and takes those out of here that it changes.
type soon struct {
	docs  map[docKey]*dueDoc
	order []*dueDoc // in which they fall due
}

// dueDoc is a document that falls due.
type dueDoc struct {
	key    docKey
	header sink.Header
	body   []byte // nil if nothing is to be said of it
	expiry ttlrules.Expiry
	said   bool // its event is stored, though it is not yet removed
	gone   bool // it is here no more
}

// set replaces all that is there.
func (s *soon) set(docs []*dueDoc) {
	slices.SortFunc(docs, func(a, b *dueDoc) int {
		return cmp.Or(cmp.Compare(a.expiry.At, b.expiry.At), cmp.Compare(a.header.Etag, b.header.Etag))
	})
	s.order = docs
	s.docs = make(map[docKey]*dueDoc, len(docs))
	for _, d := range docs {
		s.docs[d.key] = d
	}
}

// remove takes a document out, if it is there.
func (s *soon) remove(key docKey) {
	d, ok := s.docs[key]
	if !ok {
		return
	}
	d.gone = true
	delete(s.docs, key)
	for len(s.order) > 0 && s.order[0].gone {
		s.order = s.order[1:]
	}
}

// has says whether a document is there.
func (s *soon) has(key docKey) bool { return s.docs[key] != nil }

// len is how many documents there are.
func (s *soon) len() int { return len(s.docs) }

// next is the instant at which the first falls due; math.MaxInt64 if there is none.
func (s *soon) next() int64 {
	if len(s.order) == 0 {
		return math.MaxInt64
	}
	return s.order[0].expiry.At
}

// nextOf is the same of one collection.
func (s *soon) nextOf(collection string) int64 {
	for _, d := range s.order {
		if !d.gone && d.key.collection == collection {
			return d.expiry.At
		}
	}
	return math.MaxInt64
}

// due are those that are due at an instant.
func (s *soon) due(now int64) []*dueDoc {
	var due []*dueDoc
	for _, d := range s.order {
		if d.expiry.At > now {
			break
		}
		if !d.gone {
			due = append(due, d)
		}
	}
	return due
}
