package redismodel

import "github.com/seed18712806/lapse/sink/store"

// lose takes the n-th of what the collections have, in their order; after the last it counts
// from the first again. It returns false if they have none.
func (p *Partition) lose(n int, has func(c *collection) int, take func(c *collection, n int)) bool {
	p.collections.own()
	for any := true; any; {
		any = false
		for i := range p.collections.items {
			c := &p.collections.items[i]
			if n < has(c) {
				take(c, n)
				return true
			}
			any = any || has(c) > 0
			n -= has(c)
		}
	}
	return false
}

// LoseDocument loses the n-th document, in the order of Documents, but not its entry in the
// index. It returns false if there is none, as the faults below do.
func (p *Partition) LoseDocument(n int) bool {
	return p.lose(n, func(c *collection) int { return len(c.docs.items) },
		func(c *collection, n int) { c.docs.remove(c.docs.items[n]) })
}

// LoseIndexMember loses the n-th member of the indexes: by collection, inherit before own,
// the lowest score first.
func (p *Partition) LoseIndexMember(n int) bool {
	return p.lose(n, func(c *collection) int { return len(c.index.items) },
		func(c *collection, n int) { c.index.remove(c.index.items[n]) })
}

// LoseConfig loses the n-th configuration, by collection.
func (p *Partition) LoseConfig(n int) bool {
	return p.lose(n, func(c *collection) int { return count(c.config != nil) },
		func(c *collection, _ int) { c.config = nil; p.configs-- })
}

// LoseState loses the state.
func (p *Partition) LoseState() bool {
	there := p.state.Version != ""
	p.state, p.configsLeft = store.State{}, 0
	p.collections.own()
	for i := range p.collections.items {
		p.collections.items[i].left = sizes{}
	}
	return there
}

// PutForeign replaces the documents of the first collection that has some by a key of
// another type.
func (p *Partition) PutForeign() bool {
	return p.lose(0, func(c *collection) int { return count(len(c.docs.items) > 0) },
		func(c *collection, _ int) { c.docs, c.foreign = list[document]{}, true })
}

// RemoveForeign removes the first key that PutForeign has put.
func (p *Partition) RemoveForeign() bool {
	return p.lose(0, func(c *collection) int { return count(c.foreign) },
		func(c *collection, _ int) { c.foreign = false })
}

func count(there bool) int {
	if there {
		return 1
	}
	return 0
}
