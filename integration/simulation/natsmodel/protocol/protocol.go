// Package protocol has what a server of NATS computes from subjects and messages alone.
package protocol

import "strings"

// Key is a key by which filters are kept: a subject that matches the filter is the key, or its
// FirstTwo is.
func Key(filter string) string {
	if !strings.ContainsAny(filter, "*>") {
		return filter
	}
	return FirstTwo(filter)
}

// FirstTwo is the first two tokens of a subject.
func FirstTwo(subject string) string {
	i := strings.IndexByte(subject, '.') + 1
	return subject[:i+max(0, strings.IndexByte(subject[i:], '.'))]
}

// Match reports whether a subject matches a filter, which may have wildcards.
func Match(filter, subject string) bool {
	f, filters, more := strings.Cut(filter, ".")
	token, tokens, left := strings.Cut(subject, ".")
	return f == ">" || (f == token || f == "*") && more == left && (!more || Match(filters, tokens))
}

// Size is the number of bytes that the server counts for a message. raw is its header on the wire.
func Size(subject string, raw, data []byte) uint64 {
	n := len(subject) + len(raw) + len(data) + 30
	if len(raw) > 0 {
		n += 4
	}
	return uint64(n)
}
