package identity

import (
	"errors"
	"fmt"
	"hash/fnv"
)

// ErrRefused: the partition is damaged, and the log does not reach back to rebuild it.
var ErrRefused = errors.New("the partition is refused")

// impasse is why a partition cannot go on from what is stored, until a person decides:
// restore what is missing, or give it up and begin anew from the log as it is.
type impasse struct {
	why   error
	token string // names this impasse, so that a decision is about no other
}

func (r *impasse) Unwrap() error { return r.why }

func (r *impasse) Error() string {
	return fmt.Sprintf("%v; or give up what is missing and begin anew from the log as it is: start lapse once with --begin-anew %s (it uses no snapshot; what Redis holds now is kept until that has succeeded)", r.why, r.token)
}

// Decision is the token of a refusal; empty if it has none.
func Decision(err error) string {
	var r *impasse
	if !errors.As(err, &r) {
		return ""
	}
	return r.token
}

// NewImpasse makes the error of a partition that cannot go on. facts name the log and what
// is stored: they do not change while the impasse lasts, so the token stays the same.
func NewImpasse(why error, facts ...any) error {
	h := fnv.New32a()
	_, _ = fmt.Fprintln(h, facts...)
	return &impasse{why: why, token: fmt.Sprintf("%08x", h.Sum32())}
}

// Consent is a person's decision to begin anew. It covers the refusals that there are
// when lapse starts; its token names the first of them.
type Consent struct {
	token   string
	allowed map[int]string // partition → token
}

// NewConsent is the consent that a token gives; nil, which allows nothing, if it is empty.
func NewConsent(token string) *Consent {
	if token == "" {
		return nil
	}
	return &Consent{token: token}
}

// Allows reports whether a partition may begin anew in spite of an error.
func (c *Consent) Allows(partition int, err error) bool {
	var r *impasse
	return c != nil && errors.As(err, &r) && c.allowed[partition] == r.token && r.token != ""
}

// Cover notes the refusals that there are, by partition, if the first of them is the one
// that the token names.
func (c *Consent) Cover(errs []error) {
	c.allowed = make(map[int]string)
	first := true
	for i, err := range errs {
		var r *impasse
		if !errors.As(err, &r) {
			continue
		}
		if first && r.token != c.token {
			return
		}
		first = false
		c.allowed[i] = r.token
	}
}
