package fold

import (
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// inboxes are the allowed beginnings of the subject to which the outcome of a message goes.
// Those of a configuration are the same in all shards.
func (d Decoder) inboxes(m *Message, s wire.LogSubject) []string {
	rules, seq := d.Replies, m.Seq
	if m.Source > 0 {
		rules, seq = d.ConfigReplies(), m.Source
	} else if d.RepliesAt != nil {
		rules = d.RepliesAt(m.Seq)
	}
	all := []string{wire.ReplyPrefix}
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].From <= seq {
			for _, prefix := range rules[i].Prefixes {
				all = append(all, prefix+".")
			}
			break
		}
	}
	return all
}

// isInbox reports whether a subject is one to which outcomes may go.
func isInbox(subject string, inboxes []string) bool {
	const longest = 1024
	if len(subject) > longest || !isGraphic(subject) {
		return false
	}
	for _, inbox := range inboxes {
		rest, ok := strings.CutPrefix(subject, inbox)
		for token := range strings.SplitSeq(rest, ".") {
			ok = ok && token != "" && token != "*" && token != ">"
		}
		if ok {
			return true
		}
	}
	return false
}

// isGraphic reports whether s has only the visible characters of ASCII.
func isGraphic(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}
