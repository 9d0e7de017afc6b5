package backup

import (
	"encoding/json"
	"slices"

	"github.com/seed18712806/lapse/sink/wire"
)

// record is the record of a shard's snapshots, in the bucket of checkpoints. Fields that a
// backup does not need stay as they are.
type record struct {
	from        *message // nil if there is none
	fields      map[string]json.RawMessage
	generations []generation
}

// generation is a snapshot that a record names.
type generation struct {
	Generation uint64 `json:"generation"`
	Offset     uint64 `json:"offset"`
	Configured uint64 `json:"configured"`
	Taken      int64  `json:"taken"` // Unix milliseconds
	SHA256     string `json:"sha256"`
	raw        json.RawMessage
}

func parseRecord(m *message) (*record, error) {
	r := &record{from: m}
	if m == nil {
		return r, nil
	}
	if err := wire.CheckStored("it", m.Data); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(m.Data, &r.fields); err != nil {
		return nil, err
	}
	var raw []json.RawMessage
	if text := r.fields["generations"]; text != nil {
		if err := json.Unmarshal(text, &raw); err != nil {
			return nil, err
		}
	}
	for _, one := range raw {
		g := generation{raw: one}
		if err := json.Unmarshal(one, &g); err != nil {
			return nil, err
		}
		r.generations = append(r.generations, g)
	}
	return r, nil
}

// keep removes the generations that do not stay.
func (r *record) keep(stays func(generation) bool) {
	r.generations = slices.DeleteFunc(r.generations, func(g generation) bool { return !stays(g) })
}

// has reports whether the record names a generation.
func (r *record) has(g generation) bool {
	return slices.ContainsFunc(r.generations, func(own generation) bool { return own.Generation == g.Generation && own.SHA256 == g.SHA256 })
}

// newest is the offset of the newest generation; 0 if there is none.
func (r *record) newest() (offset uint64) {
	for _, g := range r.generations {
		offset = max(offset, g.Offset)
	}
	return offset
}

// message is the record as it is stored; nil if there is none.
func (r *record) message() *message {
	if r.from == nil {
		return nil
	}
	raw := make([]json.RawMessage, len(r.generations))
	for i, g := range r.generations {
		raw[i] = g.raw
	}
	r.fields["generations"], _ = json.Marshal(raw)
	m := *r.from
	m.Data, _ = json.Marshal(r.fields)
	return &m
}
