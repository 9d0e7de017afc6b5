package httpapi

import "sync"

// order puts the outcomes of lines into the order of the lines. It holds a limited number of
// lines: a client that takes no outcomes can send no further lines.
type order struct {
	mu      sync.Mutex
	changed sync.Cond
	ring    []slot
	first   int // the tag of the line whose outcome is sent next
	next    int // the tag of the next line
	ended   bool
	given   bool // up: nobody takes outcomes any more
}

// slot is a line that was read.
type slot struct {
	line int
	id   string
	text []byte // the outcome; nil before it is there
}

func newOrder(most int) *order {
	o := &order{ring: make([]slot, most)}
	o.changed.L = &o.mu
	return o
}

// add adds a line, when there is room, and returns its tag. ok = false means that nobody takes
// outcomes any more.
func (o *order) add(line int, id string) (tag int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.next-o.first == len(o.ring) && !o.given {
		o.changed.Wait()
	}
	if o.given {
		return 0, false
	}
	tag = o.next
	o.next++
	o.ring[tag%len(o.ring)] = slot{line: line, id: id}
	return tag, true
}

// set sets the outcome of a line: text returns it.
func (o *order) set(tag int, text func(line int, id string) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.ring[tag%len(o.ring)]
	s.text = text(s.line, s.id)
	if tag == o.first {
		o.changed.Broadcast()
	}
}

// settle sets the outcome of a line that has none.
func (o *order) settle(tag int, text func(line int, id string) []byte) {
	o.mu.Lock()
	has := tag < o.first || o.ring[tag%len(o.ring)].text != nil
	o.mu.Unlock()
	if !has {
		o.set(tag, text)
	}
}

// take appends to b the outcomes that come next, until it has size bytes, or no further one is
// there; if there is none, it waits. more = false means that there are no further lines.
func (o *order) take(b []byte, size int) (_ []byte, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.given && !(o.first < o.next && o.ring[o.first%len(o.ring)].text != nil) && !(o.ended && o.first == o.next) {
		o.changed.Wait()
	}
	for len(b) < size && o.first < o.next && o.ring[o.first%len(o.ring)].text != nil {
		s := &o.ring[o.first%len(o.ring)]
		b = append(b, s.text...)
		*s = slot{}
		o.first++
	}
	o.changed.Broadcast()
	return b, !o.given && !(o.ended && o.first == o.next)
}

// end says that no further line comes.
func (o *order) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
}

// giveUp says that nobody takes outcomes any more.
func (o *order) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.given = true
	o.changed.Broadcast()
}
