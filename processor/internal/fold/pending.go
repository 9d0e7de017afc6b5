package fold

// Pending are messages of the log that were taken from the queue, and are not applied yet.
type Pending struct {
	Messages []*Message
	Base     uint64 // Messages and the inbox have all that comes after this sequence
}

// Skip drops messages up to an offset.
func (p *Pending) Skip(offset uint64) {
	p.Base = max(p.Base, offset)
	for len(p.Messages) > 0 && p.Messages[0].Seq <= offset {
		p.Messages = p.Messages[1:]
	}
}

// Control is the next message, if it is a configuration or a drop.
func (p *Pending) Control() *Message {
	if len(p.Messages) > 0 && p.Messages[0].IsControl() {
		return p.Messages[0]
	}
	return nil
}

// Applied drops the first n messages, which were applied.
func (p *Pending) Applied(n int) {
	if n > 0 {
		p.Base = p.Messages[n-1].Seq
		p.Messages = p.Messages[n:]
	}
	if len(p.Messages) == 0 {
		p.Messages = nil // so that the memory is freed
	}
}
