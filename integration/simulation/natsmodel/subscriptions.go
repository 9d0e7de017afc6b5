package natsmodel

import (
	"slices"
	"strings"
)

type subscription struct {
	client              *Client
	sid, subject, queue string
	sent, max           int // max is 0 if there is no limit
}

// subscriptions finds subscriptions by subject. Nearly all are to an inbox, so those with a
// wildcard are found by their first two tokens.
type subscriptions struct {
	exact map[string][]*subscription
	below map[string][]*subscription // by the first two tokens
	other []*subscription            // have a wildcard among those
}

func (s *subscriptions) add(sub *subscription) {
	if !strings.ContainsAny(sub.subject, "*>") {
		s.exact[sub.subject] = append(s.exact[sub.subject], sub)
	} else if two := firstTwo(sub.subject); strings.ContainsAny(two, "*>") {
		s.other = append(s.other, sub)
	} else {
		s.below[two] = append(s.below[two], sub)
	}
}

func (s *subscriptions) remove(sub *subscription) {
	is := func(other *subscription) bool { return other == sub }
	without := func(m map[string][]*subscription, key string) {
		if m[key] = slices.DeleteFunc(m[key], is); len(m[key]) == 0 {
			delete(m, key)
		}
	}
	without(s.exact, sub.subject)
	without(s.below, firstTwo(sub.subject))
	s.other = slices.DeleteFunc(s.other, is)
}

// match returns the subscriptions that a subject matches. The caller may unsubscribe them.
func (s *subscriptions) match(subject string) (subs []*subscription) {
	subs = append(subs, s.exact[subject]...)
	for _, some := range [2][]*subscription{s.below[firstTwo(subject)], s.other} {
		for _, sub := range some {
			if match(sub.subject, subject) {
				subs = append(subs, sub)
			}
		}
	}
	return subs
}

// firstTwo is the first two tokens of a subject.
func firstTwo(subject string) string {
	i := strings.IndexByte(subject, '.') + 1
	if j := strings.IndexByte(subject[i:], '.'); j >= 0 {
		return subject[:i+j]
	}
	return subject
}

// match reports whether a subject matches a filter, which may have wildcards.
func match(filter, subject string) bool {
	for {
		f, filters, more := strings.Cut(filter, ".")
		if f == ">" {
			return subject != ""
		}
		token, tokens, left := strings.Cut(subject, ".")
		if f != token && f != "*" || more != left {
			return false
		}
		if !more {
			return true
		}
		filter, subject = filters, tokens
	}
}

// collide reports whether a subject can match both filters.
func collide(a, b string) bool {
	for {
		x, as, moreA := strings.Cut(a, ".")
		y, bs, moreB := strings.Cut(b, ".")
		if x == ">" || y == ">" {
			return true
		}
		if x != y && x != "*" && y != "*" || moreA != moreB {
			return false
		}
		if !moreA {
			return true
		}
		a, b = as, bs
	}
}
