package fold

import (
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Bounds of one step.
const (
	BatchMessages = 512     // messages of one batch
	BatchBytes    = 4 << 20 // in their bodies; and in the documents of outputs
	parseBytes    = 4 << 20 // of JSON that patches parse, beside one document
)

// large is how many bytes a document has that people are told of while patches are merged into it.
const large = 100_000

// Batch is the longest run of pending messages that the owner applies in one step.
func Batch(pending []*Message) []*Message {
	n, bytes := 0, 0
	for n < len(pending) && n < BatchMessages && bytes < BatchBytes && !pending[n].IsControl() {
		bytes += len(pending[n].Body)
		n++
	}
	return pending[:n]
}

// Name makes slots for the documents that messages name, and returns them, with those that the owner has to read whole.
func (d *Decision) Name(messages []*Message) (slots []*Slot, whole map[Key]bool) {
	whole = make(map[Key]bool)
	last := d.last(messages)
	for _, m := range messages {
		if m.Kind != Write {
			continue
		}
		key := Key{Collection: m.Collection, ID: m.ID}
		d.Slot(key)
		for _, generation := range d.catalog.Generations(m.Collection) {
			d.Slot(Key{Collection: generation, ID: m.ID})
		}
		// A document that is touched, and expires before the batch ends, is needed whole. No TTL is shorter than a
		// second; an absolute deadline may be near, and a clock may have run out. So may a warning of it.
		config := d.catalog.Config(m.Collection)
		near := last-messages[0].Time >= 1000 || m.Clock.ExpiresAt != nil || m.Clock.Begin != nil ||
			len(config.Warnings) > 0
		if m.Op == wire.Patch || m.Op == wire.Touch && near || d.isIndexed(m, config) {
			whole[key] = true
		}
	}
	d.whole = whole
	return d.order, whole
}

// last is the log time at the end of a batch.
func (d *Decision) last(messages []*Message) int64 {
	last := d.Watermark
	for _, m := range messages {
		last = max(last, m.Time)
	}
	return last
}

// SetStored notes the stored version of a document. body is nil if it was not read.
func (s *Slot) SetStored(h *store.Header, body []byte) {
	s.Stored = h
	s.Now = &Version{Header: *h, Body: body}
	s.was = s.Now
}

// FirstAhead is the index of the first message that finds a document expired whose deadline is after the instant that
// readers are known to have reached; -1 if there is none. Readers may still return that document.
func (d *Decision) FirstAhead(messages []*Message, reached int64) int {
	for i, m := range messages {
		s := d.docs[Key{Collection: m.Collection, ID: m.ID}]
		if m.Kind != Write || s.Stored == nil {
			continue
		}
		x, ok := d.catalog.Config(m.Collection).History.ExpiredAt(s.Stored.Clock())
		if ok && x.At <= max(d.Watermark, m.Time) && x.At > reached {
			return i
		}
	}
	return -1
}

// Lacking returns the slots that were read without the bodies that messages need: those that [Decision.Name] has
// named whole, and those whose documents expire or are to be warned of before the batch ends. One read brings
// [store.ReadBytes] of bodies. Once a step has as many bytes, it returns fewer messages: those before the first that
// lacks a body, or that one if it is the first of all.
func (d *Decision) Lacking(messages []*Message) (batch []*Message, slots []*Slot, whole map[Key]bool) {
	last, bytes := d.last(messages), 0
	for _, s := range d.order {
		if s.Now != nil {
			bytes += len(s.Now.Body)
		}
	}
	whole = make(map[Key]bool)
	add := func(key Key) {
		s := d.docs[key]
		if s.Stored == nil || s.Now.Body != nil || whole[key] {
			return
		}
		clock := s.Stored.Clock()
		if d.whole[key] || d.catalog.Config(key.Collection).History.Expired(clock, last) ||
			len(d.catalog.Unwarned(key, clock, last)) > 0 {
			whole[key] = true
			slots = append(slots, s)
		}
	}
	for i, m := range messages {
		if m.Kind != Write {
			continue
		}
		for _, generation := range d.catalog.Generations(m.Collection) {
			add(Key{Collection: generation, ID: m.ID})
		}
		add(Key{Collection: m.Collection, ID: m.ID})
		switch {
		case len(slots) == 0 || bytes < store.ReadBytes:
		case i == 0:
			return messages[:1], slots, whole
		default:
			return messages[:i], nil, nil
		}
	}
	return messages, slots, whole
}

// Wants names the documents of slots for a read, those in whole with their bodies. order has the
// slots of each want, as Read returns the documents.
func Wants(slots []*Slot, whole map[Key]bool) (wants []store.Want, order [][]*Slot) {
	var wholes [][]*Slot
	at := make(map[string]int)
	for _, s := range slots {
		i, ok := at[s.Key.Collection]
		if !ok {
			i = len(wants)
			at[s.Key.Collection] = i
			wants = append(wants, store.Want{Collection: s.Key.Collection})
			order, wholes = append(order, nil), append(wholes, nil)
		}
		if whole[s.Key] {
			wants[i].Whole = append(wants[i].Whole, s.Key.ID)
			wholes[i] = append(wholes[i], s)
		} else {
			wants[i].Headers = append(wants[i].Headers, s.Key.ID)
			order[i] = append(order[i], s)
		}
	}
	for i := range order {
		order[i] = append(order[i], wholes[i]...)
	}
	return wants, order
}
