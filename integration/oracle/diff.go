package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is a kind of finding.
type Kind string

// The kinds of findings, in the order in which a Diff prints them.
const (
	Missing    Kind = "missing"      // not published or not readable yet: waiting may help
	Twice      Kind = "twice"        // published or listed more than once
	Early      Kind = "early"        // published before its instant, or before the log reached it
	Unexpected Kind = "unexpected"   // published or readable, though it must not be
	Wrong      Kind = "wrong"        // published or read with other content
	Order      Kind = "out of order" // published in another order than the log's
)

// Finding is one difference between lapse and the model.
type Finding struct {
	Kind Kind
	Text string
}

// Diff holds the differences between lapse and the model; it is empty if there are none.
type Diff []Finding

func (d *Diff) add(kind Kind, format string, args ...any) {
	*d = append(*d, Finding{kind, fmt.Sprintf(format, args...)})
}

// OnlyMissing reports whether waiting may help.
func (d Diff) OnlyMissing() bool {
	return !slices.ContainsFunc(d, func(f Finding) bool { return f.Kind != Missing })
}

// String prints the first few findings of each kind.
func (d Diff) String() string {
	const most = 10
	var b strings.Builder
	for _, kind := range []Kind{Missing, Twice, Early, Unexpected, Wrong, Order} {
		var texts []string
		for _, f := range d {
			if f.Kind == kind {
				texts = append(texts, f.Text)
			}
		}
		if len(texts) == 0 {
			continue
		}
		slices.Sort(texts)
		fmt.Fprintf(&b, "%s (%d):\n", kind, len(texts))
		for _, text := range texts[:min(most, len(texts))] {
			fmt.Fprintf(&b, "  %s\n", text)
		}
		if more := len(texts) - most; more > 0 {
			fmt.Fprintf(&b, "  and %d more\n", more)
		}
	}
	return b.String()
}

// abbreviate quotes a text, and cuts a long one.
func abbreviate(b []byte) string {
	const longest = 200
	if len(b) <= longest {
		return strconv.Quote(string(b))
	}
	return strconv.Quote(string(b[:longest])) + fmt.Sprintf("… (%d bytes)", len(b))
}
