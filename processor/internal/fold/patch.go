package fold

import "strings"

// value is a JSON value in a document that patches change. An object has its members apart once a patch
// names it, and keeps them so while a step applies more patches: so a step reads a document once, however
// many patches it applies to it, and writes its bytes when somebody needs them.
type value struct {
	raw    []byte  // its bytes; nil once a patch has changed them
	object *object // its members; nil of an object that no patch has named, and of any other value
}

// object is a JSON object. If several of its members have the same name, the last one counts, in the place
// of the first.
type object struct {
	members []member       // in their order; one that is gone is zero
	at      map[string]int // where each member is, by its name
	length  int            // of the members, without the commas between them
}

type member struct {
	quoted string // its name, as it is written
	value
}

// name is the name without escapes.
func (m *member) name() string { return unquote(m.quoted) }

// parse takes an object apart, with the objects in it that along names as objects, or all objects in it.
// It reads each byte once, however deep these are. Check has accepted the object.
func parse(raw []byte, along *object, all bool) *object {
	p := parser{b: raw, text: string(raw), all: all, members: make([]member, 0, len(raw)/memberBytes+1)}
	o, _ := p.object(skipSpace(raw, 0), along)
	return o
}

// memberBytes is about how long members are, of which there are many.
const memberBytes = 32

type parser struct {
	b       []byte
	text    string // b: the names are parts of it
	all     bool
	members []member // so far, of the objects that i is in
}

// object returns the object that begins at i, and the index after it.
func (p *parser) object(i int, along *object) (*object, int) {
	first := len(p.members)
	for i++; ; {
		i = skipSpace(p.b, i)
		if p.b[i] == '}' {
			o := newObject(p.members[first:])
			p.members = p.members[:first]
			return o, i + 1
		}
		if p.b[i] == ',' {
			i = skipSpace(p.b, i+1)
		}
		end := skipString(p.b, i)
		m := member{quoted: p.text[i:end]}
		// quote escapes U+2028
		if strings.IndexByte(m.quoted, '\\') >= 0 || strings.IndexByte(m.quoted, "\u2028"[0]) >= 0 {
			m.quoted = string(quote(m.name()))
		}
		begin := skipSpace(p.b, skipSpace(p.b, end)+1)
		var below *object
		if p.b[begin] == '{' {
			below = along.below(&m)
		}
		if below != nil || p.b[begin] == '{' && p.all {
			m.object, i = p.object(begin, below)
		} else {
			i = skipValue(p.b, begin)
		}
		m.raw = p.b[begin:i]
		p.members = append(p.members, m)
	}
}

// newObject makes an object of members.
func newObject(members []member) *object {
	o := &object{members: make([]member, 0, len(members)), at: make(map[string]int, len(members))}
	for i := range members {
		o.set(members[i].name(), &members[i])
	}
	for i := range o.members {
		o.length += o.members[i].size()
	}
	return o
}

// below is the object that a member is; nil if there is none that was taken apart.
func (o *object) below(m *member) *object {
	if o == nil {
		return nil
	}
	if i, there := o.at[m.name()]; there {
		return o.members[i].object
	}
	return nil
}

// set puts a member in the place of the one that has its name, or at the end.
func (o *object) set(name string, m *member) {
	if i, there := o.at[name]; there {
		o.members[i] = *m
		return
	}
	o.at[name] = len(o.members)
	o.members = append(o.members, *m)
}

// size is the length of the bytes of a member.
func (m *member) size() int { return len(m.quoted) + len(":") + m.value.size() }

func (v *value) size() int {
	if v.raw != nil {
		return len(v.raw)
	}
	return objectSize(v.object.length, len(v.object.at))
}

// objectSize is the length of the bytes of an object with n members, which have a length.
func objectSize(length, n int) int { return len("{}") + length + max(n-1, 0) }

// open takes the objects in a value apart that a patch names. It returns how many bytes it has read for that.
func (v *value) open(patch *object) (parsed int) {
	switch {
	case v.object != nil:
		for i := range patch.members {
			p := &patch.members[i]
			if p.object == nil {
				continue
			}
			if at, there := v.object.at[p.name()]; there {
				parsed += v.object.members[at].open(p.object)
			}
		}
	case v.raw[skipSpace(v.raw, 0)] == '{':
		v.object, parsed = parse(v.raw, patch, false), len(v.raw)
	}
	return parsed
}

// merge applies a merge patch (RFC 7396) to a value that is open for it, and returns the length of its bytes
// then. Members that the patch does not name keep their bytes and their order, and new ones come at the end.
// The result has no more levels than the deeper of the two. If it is only tried, nothing changes.
func (v *value) merge(patch *object, try bool) (size int) {
	o := v.object
	if o == nil { // any other value gives way to an object
		o = &object{at: make(map[string]int)}
	}
	length, n := o.length, len(o.at)
	for i := range patch.members {
		p := &patch.members[i]
		name, next := p.name(), member{quoted: p.quoted}
		if at, there := o.at[name]; there {
			next = o.members[at]
			length, n = length-next.size(), n-1
			if p.isNull() && !try {
				o.members[at] = member{}
				delete(o.at, name)
			}
		}
		if p.isNull() {
			continue
		}
		below := len(p.raw)
		if p.object != nil {
			below = next.merge(p.object, try)
		} else {
			next.value = p.value
		}
		length, n = length+len(next.quoted)+len(":")+below, n+1
		if !try {
			o.set(name, &next)
		}
	}
	if !try {
		o.length = length
		*v = value{object: o}
	}
	return objectSize(length, n)
}

func (v *value) isNull() bool { return string(v.raw) == "null" }

// append appends the bytes of a value.
func (v *value) append(b []byte) []byte {
	if v.raw != nil {
		return append(b, v.raw...)
	}
	b = append(b, '{')
	first := len(b)
	for i := range v.object.members {
		m := &v.object.members[i]
		if m.quoted == "" {
			continue // it is gone
		}
		if len(b) > first {
			b = append(b, ',')
		}
		b = append(append(b, m.quoted...), ':')
		b = m.append(b)
	}
	return append(b, '}')
}
