package entries

import (
	"encoding/json"

	"github.com/seed18712806/lapse/sink/wire"
)

// Encode returns a condition as [ParseWhere] reads it, always in the same form. Of a condition that no request can have,
// such as the zero Condition, it returns what ParseWhere refuses.
func (c Condition) Encode() []byte {
	members := map[string]any{}
	end := func(v *Value, equal bool, name, nameEqual string) {
		if v == nil {
			return
		}
		if equal {
			name = nameEqual
		}
		members[name] = v.plain()
	}
	switch {
	case c.In != nil:
		values := make([]any, len(c.In))
		for i, v := range c.In {
			values[i] = v.plain()
		}
		members[memberIn] = values
	case c.Prefix != nil:
		members[memberPrefix] = *c.Prefix
	default:
		end(c.Over, c.OverEqual, memberGt, memberGte)
		end(c.Under, c.UnderEqual, memberLt, memberLte)
	}
	text, _ := json.Marshal(members) // fails for a number that JSON does not have; ParseWhere refuses an empty text
	return text
}

// plain is a value as encoding/json writes it.
func (v Value) plain() any {
	switch v.Kind {
	case Boolean:
		return v.Bool
	case Number:
		return v.Number
	case String:
		return v.Text
	}
	return nil
}

// String is the order as [ParseOrder] reads it.
func (o Order) String() string {
	switch {
	case o.ByDeadline:
		return string(wire.ByDeadline)
	case o.ByID:
		return string(wire.ByID)
	case o.Descending:
		return descending + o.Pointer
	}
	return o.Pointer
}
