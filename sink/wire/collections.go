package wire

import (
	"fmt"
	"slices"
	"strings"
)

// LogRules is the name under which the log, Redis and the snapshots have the rules that count for all messages
// ([LogRulesBody]). They are configured like a collection, so every replay comes to them at the same place. No
// collection can have this name.
const LogRules = "$rules"

// LogRulesBody is the body of a configuration of [LogRules]. Before the first one collections are not open, and no
// reply prefix is allowed.
type LogRulesBody struct {
	Open          bool     `json:"open"`                    // every collection exists; else those that are configured
	ReplyPrefixes []string `json:"replyPrefixes,omitempty"` // of [Inboxes]
}

// Equal reports whether two bodies say the same.
func (b LogRulesBody) Equal(other LogRulesBody) bool {
	return b.Open == other.Open && slices.Equal(b.ReplyPrefixes, other.ReplyPrefixes)
}

// ReasonNoCollection is the reason of an outcome, a rejection or a failed read: the collection does not exist.
const ReasonNoCollection = "no-collection"

// ReasonUndeliverable is the reason of a 409 about a message to a target that could never be delivered.
const ReasonUndeliverable = "undeliverable"

// ReasonNoIndex is the reason of a 400 about a query that no index of the collection serves. ReasonIndexMade is that of
// a 503 about one whose index is still being made.
const (
	ReasonNoIndex   = "no-index"
	ReasonIndexMade = "index-being-made"
)

// HeaderReason is on a rejection and on the answer to a read that failed, if that has a reason for programs.
const HeaderReason = "Lapse-Reason"

// nearestBegins begins the part of the text that names another collection.
const nearestBegins = " Did you mean "

// NoCollection is the sentence about a collection that does not exist, with the name that is nearest to it, if there
// is one.
func NoCollection(collection, nearest string) string {
	text := fmt.Sprintf("there is no collection %s: configure it first (lapse config %s --default-ttl 1h, or "+
		"--default-ttl off to keep its documents).", collection, collection)
	if nearest != "" {
		text += nearestBegins + nearest + "?"
	}
	return text
}

// WithoutNearest is a sentence of [NoCollection] for somebody who may not know the other collections.
func WithoutNearest(text string) string {
	text, _, _ = strings.Cut(text, nearestBegins)
	return text
}

// Nearest is the name that is nearest to one that does not exist, or begins with it; "" if none is near. Of several,
// it is the shortest, and of these the first.
func Nearest(name string, names []string) string {
	nearest, least := "", min(max(1, len(name)/3), len(name)-1)
	lower := strings.ToLower(name)
	for _, one := range names {
		other := strings.ToLower(one)
		n := least + 1
		if d := len(one) - len(name); -least <= d && d <= least {
			n = distance(lower, other)
		}
		if name != "" && strings.HasPrefix(other, lower) {
			n = min(n, 1, least)
		}
		shorter := len(one) < len(nearest) || len(one) == len(nearest) && one < nearest
		if n < least || n == least && (nearest == "" || shorter) {
			nearest, least = one, n
		}
	}
	return nearest
}

// distance is how many characters it takes to change, insert or remove, or to swap with the next, to
// make a name of another.
func distance(s, t string) int {
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case s[i-1] == t[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j], rows[i][j-1], rows[i-1][j-1])
			}
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}
