package oracle

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/integration/oracle/patch"
	"github.com/seed18712806/lapse/integration/simulation/conditions"
	"github.com/seed18712806/lapse/sink/wire"
)

// write applies a write; rest is <op>.<collection>.<id>. The caller has moved log time
// to the message, so expired documents are gone.
func (m *Model) write(msg Message, rest string) {
	op, named, _ := strings.Cut(rest, ".")
	collection, token, _ := strings.Cut(named, ".")

	codes := m.faults(msg, op)
	id, err := wire.UnescapeID(token)
	if err != nil || wire.CheckCollection(collection) != nil {
		m.reject(msg, nil, msg.Subject, named, append([]int{wire.StatusBadRequest}, codes...)...)
		return
	}
	name := Name{collection, id}
	m.names[name] = true
	reject := func(codes ...int) { m.reject(msg, &name, msg.Subject, named, codes...) }
	on := m.collections[collection].Default != 0
	asked := m.askedOf(msg)
	codes = append(append(codes, bodyFaults(wire.Op(op), id, msg.Data, on)...),
		asked.faults(m.collections[collection], m.now)...)
	codes = append(codes, m.collectionFaults(msg, collection)...)
	if len(codes) > 0 {
		reject(codes...)
		return
	}
	old, exists := m.docs[name]
	if code := unmet(wire.Op(op), header(msg, wire.HeaderIfMatch), old, exists); code != 0 {
		reject(code)
		return
	}
	if header(msg, "Lapse-Slide") != "" {
		m.slide(msg, name, old, reject)
		return
	}
	next := Document{Etag: wire.Etag(msg.Seq), Ts: m.now, Trace: trace(msg)}
	change := Change{Name: name, Document: next, Seq: msg.Seq, At: m.now}
	switch wire.Op(op) {
	case wire.Delete:
		delete(m.docs, name)
		m.fates[old.Etag] = "deleted by " + next.Etag.String()
		m.Outcomes[msg.Seq] = wire.Outcome{Status: wire.StatusNoContent}
		change.Kind = "deleted"
		m.change(m.collections[collection], change)
		return
	case wire.Touch:
		next.Body, next.Merged = old.Body, old.Merged
	case wire.Patch:
		next.Body, next.Merged = patch.Merge(old.Body, msg.Data), true
		if len(next.Body) > m.set.MaxBody {
			reject(wire.StatusTooLarge)
			return
		}
	default:
		next.Body = msg.Data
	}
	members, _ := object(next.Body)
	next.TTL, _ = ttl(members["ttl"]) // one that is not valid, stored while TTL was off, counts as none
	next.Begin, next.End, next.Last = asked.clock(wire.Op(op), old, exists, m.now)
	if next.Target = target(msg, wire.Op(op), old); next.Target != "" {
		next.Trace = traceBeside(next.Trace)
	}
	if asked.breaksLimit(next, m.collections[collection]) {
		reject(wire.StatusBadRequest)
		return
	}
	m.collections[collection].outlive(&next, old, exists, asked.born, m.now)
	m.put(name, next)
	m.fates[next.Etag] = "live"
	outcome := wire.Outcome{Status: wire.StatusCreated, Etag: next.Etag, Ts: next.Ts}
	if exists {
		outcome.Status = wire.StatusOK
		m.fates[old.Etag] = "overwritten by " + next.Etag.String()
	}
	if deadline, _, ok := m.deadline(name, next); ok {
		m.expect(name, next, deadline)
		outcome.ExpiresAt = &deadline
	}
	outcome.Warning = m.warning(msg, collection, asked, outcome)
	m.Outcomes[msg.Seq] = outcome
	change.Document, change.Touched, change.ExpiresAt = next, wire.Op(op) == wire.Touch, outcome.ExpiresAt
	change.Kind = map[bool]string{false: "created", true: "updated"}[exists]
	m.change(m.collections[collection], change)
}

// slide renews the clock of a version for a read, if that moves its deadline. All else of the version stays.
func (m *Model) slide(msg Message, name Name, old Document, reject func(...int)) {
	c, next := m.collections[name.Collection], old
	next.Begin = m.now
	c.outlive(&next, old, true, nil, m.now)
	before, _, expires := m.deadline(name, old)
	deadline, _, _ := m.deadline(name, next)
	if !expires || before == deadline {
		reject(wire.StatusConflict)
		return
	}
	m.docs[name] = next
	m.expect(name, next, deadline)
	m.Outcomes[msg.Seq] = wire.Outcome{Status: wire.StatusOK, Etag: next.Etag, Ts: next.Ts, ExpiresAt: &deadline}
	if firstInTTL(old.Begin, m.now, deadline) {
		m.change(c, Change{Name: name, Document: next, Seq: msg.Seq, At: m.now, Kind: "updated", Touched: true,
			ExpiresAt: &deadline})
	}
}

// firstInTTL reports whether a renewal for a read is the first in a TTL, where time is divided into such: that one is
// published.
func firstInTTL(before, now, deadline wire.Time) bool {
	length := max(deadline-now, 1)
	return before/length < now/length
}

// unmet returns the code if the present version, which may not exist, does not let an operation take
// effect; 0 if it does.
func unmet(op wire.Op, match string, old Document, exists bool) int {
	switch op {
	case wire.Create:
		if exists {
			return wire.StatusConflict
		}
	case wire.Replace, wire.Patch, wire.Touch, wire.Delete:
		if !exists {
			return wire.StatusNotFound
		}
	}
	if match != "" && (!exists || match != "*" && match != old.Etag.String()) {
		return wire.StatusPreconditionFailed
	}
	return 0
}

// administer applies a configuration or a drop. All shards reach the same result; the first one
// records a rejection.
func (m *Model) administer(msg Message, kind, collection string) {
	codes := m.faults(msg, kind)
	if kind == "config" && collection == "$rules" && len(codes) == 0 {
		m.rule(msg)
		return
	}
	if wire.CheckCollection(collection) != nil {
		codes = append(codes, wire.StatusBadRequest)
	}
	current := m.collections[collection]
	var next Collection
	if kind == "config" {
		var ok bool
		if next, ok = configuration(msg.Data, current); !ok {
			codes = append(codes, wire.StatusBadRequest)
		}
	} else if len(msg.Data) > 0 {
		codes = append(codes, wire.StatusBadRequest)
	}
	if match := header(msg, wire.HeaderIfMatch); len(codes) == 0 && match != "" {
		if current.Etag == 0 || match != "*" && match != current.Etag.String() {
			codes = append(codes, wire.StatusPreconditionFailed)
		}
	}
	if len(codes) == 0 && kind == "drop" && !m.exists(collection) {
		codes = append(codes, wire.StatusNotFound)
	}
	if kind == "config" && len(codes) == 0 {
		var ok bool
		if next, ok = current.pause(next); !ok {
			codes = append(codes, wire.StatusConflict)
		}
	}
	if len(codes) > 0 {
		if m.set.Shard == 0 {
			// The subject of the rejection has no id token, or it would be a document's.
			target, _, _ := strings.Cut(collection, ".")
			m.reject(msg, nil, msg.Subject, target, codes...)
		}
		return
	}
	if !next.Paused { // a drop ends a pause too
		m.resume(collection)
	}
	if kind == "drop" {
		for name, d := range m.docs {
			if name.Collection == collection {
				delete(m.docs, name)
				m.fates[d.Etag] = "dropped by " + strconv.FormatUint(msg.Seq, 10)
			}
		}
		delete(m.collections, collection)
		if m.set.Shard == 0 {
			m.change(current, m.dropped(collection, msg))
		}
		m.Outcomes[msg.Seq] = wire.Outcome{Status: wire.StatusNoContent}
		return
	}
	next.Since, next.Etag = m.now, wire.Etag(cmp.Or(m.configured, msg.Seq))
	if next.lasting() == current.lasting() {
		next.Since = current.Since // an equal default changes nothing
	}
	resumed := current.Paused && !next.Paused
	if next.WarnSince = m.now; !resumed && slices.Equal(next.WarnBefore, current.WarnBefore) {
		next.WarnSince = current.WarnSince
	}
	m.collections[collection] = next
	for name := range m.docs {
		if name.Collection == collection { // the change may move its deadline
			m.expire.add(name, m.now)
			m.remind.add(name, m.now)
		}
	}
	m.Outcomes[msg.Seq] = wire.Outcome{Status: wire.StatusOK, Etag: next.Etag, Ts: m.now}
}

// rule applies the rules of the log.
func (m *Model) rule(msg Message) {
	var rules map[string]any
	err := json.Unmarshal(msg.Data, &rules)
	open, ok := rules["open"].(bool)
	prefixes, isList := rules["replyPrefixes"].([]any)
	var all []string
	for _, prefix := range prefixes {
		text, isText := prefix.(string)
		ok = ok && isText && m.set.Prefix.CheckReplyPrefix(text) == nil
		all = append(all, text)
	}
	if listed := rules["replyPrefixes"] != nil; err != nil || !ok || listed && !isList || len(rules) > 2 {
		m.reject(msg, nil, msg.Subject, "$rules", wire.StatusBadRequest)
		return
	}
	m.open, m.replyPrefixes = open, all
	m.Outcomes[msg.Seq] = wire.Outcome{Status: wire.StatusOK, Etag: wire.Etag(cmp.Or(m.configured, msg.Seq)), Ts: m.now}
}

// collectionFaults returns the codes for what the collection of a write does not allow.
func (m *Model) collectionFaults(msg Message, collection string) (codes []int) {
	if !m.exists(collection) {
		codes = append(codes, wire.StatusNotFound)
	}
	if header(msg, "Lapse-Target") != "" && m.collections[collection].Default == 0 {
		codes = append(codes, wire.StatusConflict)
	}
	return codes
}

// warning is the beginning of the warning in the outcome of a write, or a part of it; "" if it has none.
func (m *Model) warning(msg Message, collection string, asked asked, outcome wire.Outcome) string {
	seconds, ok := ttl(asked.ttl)
	switch {
	case m.collections[collection].Default == 0 && (!ok || seconds > 0 || asked.end != nil):
		return "TTL is off in collection " + collection
	case m.collections[collection].Etag == 0:
		return "collection " + collection + " is not configured"
	case outcome.ExpiresAt == nil && header(msg, "Lapse-Target") != "":
		return "nothing is delivered"
	}
	for _, pointer := range m.collections[collection].Indexes {
		if slices.Contains(conditions.At(msg.Data, pointer), conditions.LeftOut) {
			return "is not indexed"
		}
	}
	return ""
}
