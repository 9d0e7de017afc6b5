package fold

import (
	"fmt"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// targetOps are the operations that may have the header Lapse-Target.
var targetOps = []wire.Op{wire.Upsert, wire.Create, wire.Replace}

// readTarget reads the values of the header Lapse-Target.
func (m *Message) readTarget(values []string) *Refusal {
	if r := m.takes(wire.HeaderTarget, values, targetOps); r != nil || len(values) == 0 {
		return r
	}
	if err := wire.CheckTarget(values[0]); err != nil {
		return Refuse(wire.StatusBadRequest, "header %s: %v", wire.HeaderTarget, err)
	}
	m.Target = values[0]
	return nil
}

// undeliverable refuses a message to a target in a collection in which nothing expires.
func undeliverable(m *Message, config store.Config) *Refusal {
	if m.Target == "" || config.History.Current() != ttlrules.Off {
		return nil
	}
	r := Refuse(wire.StatusConflict, "TTL is off in collection %s, so nothing can ever be delivered to %s: %s.", m.Collection, m.Target, turnOn(m.Collection, config))
	r.Reason = wire.ReasonUndeliverable
	return r
}

// undelivered warns that a message to a target has no time: its document never expires.
func undelivered(m *Message) string {
	return fmt.Sprintf("this document never expires, so nothing is delivered to %s: give it a ttl, or a deadline in the header %s.", m.Target, wire.HeaderExpiresAt)
}

// traceBeside is a traceparent as it is stored beside a target, where a long one has no room. Only a
// version after 00 is long. Its beginning is as in version 00, which the W3C has a program write that
// does not know the version.
func traceBeside(trace string) string {
	const length = 55 // of version 00
	if len(trace) <= store.MaxTraceWithTarget {
		return trace
	}
	return "00" + trace[2:length]
}
