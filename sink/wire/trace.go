package wire

import "strings"

// maxTraceparent is longer than every known version, and short enough for the headers of an
// event.
const maxTraceparent = 200

// ValidTraceparent reports whether s is a traceparent as the W3C recommendation Trace Context
// defines it: version, trace id, parent id and flags in lower-case hexadecimal, neither id all
// zero, and the version not ff. Version 00 ends there. A later version may have more after
// another dash.
func ValidTraceparent(s string) bool {
	const traceID, parentID, flags, end = 3, 36, 53, 55 // where each begins
	if len(s) < end || len(s) > maxTraceparent {
		return false
	}
	version, trace, parent := s[:traceID-1], s[traceID:parentID-1], s[parentID:flags-1]
	for _, part := range []string{version, trace, parent, s[flags:end]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	if s[traceID-1] != '-' || s[parentID-1] != '-' || s[flags-1] != '-' {
		return false
	}
	if version == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return false
	}
	more := s[end:]
	if more == "" {
		return true
	}
	visible := func(r rune) bool { return '!' <= r && r <= '~' }
	return version != "00" && more[0] == '-' && len(more) > 1 && strings.TrimFunc(more, visible) == ""
}
