// Package patch merges and compares JSON texts for the oracle, apart from the code of lapse.
package patch

import (
	"bytes"
	"encoding/json"
)

// Merge applies a merge patch (RFC 7396) to an object.
func Merge(target, patch []byte) []byte {
	merged := mergeValues(decode(target), decode(patch))
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(merged); err != nil {
		panic(err) // merged was decoded from JSON
	}
	return bytes.TrimSpace(b.Bytes())
}

func mergeValues(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for member, change := range changes {
		if change == nil {
			delete(object, member)
		} else {
			object[member] = mergeValues(object[member], change)
		}
	}
	return object
}

// decode decodes valid JSON, and keeps numbers as they are written.
func decode(b []byte) any {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err) // the caller has validated it
	}
	return v
}

// Same reports whether two texts are the same JSON value.
func Same(a, b []byte) bool {
	if !json.Valid(a) || !json.Valid(b) {
		return false
	}
	if bytes.Equal(a, b) { // mostly so, and much cheaper
		return true
	}
	x, errX := json.Marshal(decode(a))
	y, errY := json.Marshal(decode(b))
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
