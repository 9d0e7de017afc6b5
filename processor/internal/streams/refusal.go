package streams

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
)

// ErrRefused: the partition is damaged, and the log does not reach back to rebuild it.
var ErrRefused = errors.New("the partition is refused")

// What a person may give up, with the token.
const (
	giveUpState  = "give up what is missing and begin anew from the log as it is: start lapse once with --begin-anew %s (it uses no snapshot; what Redis holds now is kept until that has succeeded)"
	passGaps     = "go on without them: start lapse once with --begin-anew %s (nothing else is given up, and lapse does not ask about them again)"
	giveUpEvents = "give up these events for good and go on without them: start lapse once with --begin-anew %s (the documents stay as they are, and nothing else is given up)"
)

// impasse is why a partition cannot go on from what is stored, until a person decides:
// restore what is missing, or give it up.
type impasse struct {
	why   error
	offer string // what may be given up
	token string // names this impasse, so that a decision is about no other
}

func (r *impasse) Unwrap() error { return r.why }

func (r *impasse) Error() string {
	return fmt.Sprintf("%v; or "+r.offer, r.why, r.token)
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
func NewImpasse(why error, facts ...any) error { return newImpasse(why, giveUpState, facts) }

// NewLoss is NewImpasse where nothing is missing but events.
func NewLoss(why error, facts ...any) error {
	return newImpasse(why, giveUpEvents, append([]any{"events"}, facts...))
}

func newImpasse(why error, offer string, facts []any) error {
	h := fnv.New32a()
	_, _ = fmt.Fprintln(h, facts...)
	return &impasse{why: why, offer: offer, token: fmt.Sprintf("%08x", h.Sum32())}
}

// Consent is a person's decision to give something up. It covers the refusals that there are
// when lapse starts, of one kind; its token names any of them, as a person sees one partition's
// before another is refused too.
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

// Allows reports whether a partition may go on in spite of an error, without what is missing.
func (c *Consent) Allows(partition int, err error) bool {
	var r *impasse
	return c != nil && errors.As(err, &r) && c.allowed[partition] == r.token && r.token != ""
}

// Cover notes the refusals that there are, by partition, of the kind of which the token names
// one. It returns one of them if they are an ErrLogGap: this decision is noted in the log, and
// counts for all partitions (PassGaps).
func (c *Consent) Cover(errs []error) (gap error) {
	offers := make([]string, len(errs)) // "" if it is none
	tokens := make(map[int]string)
	named := ""
	for i, err := range errs {
		var r *impasse
		if !errors.As(err, &r) {
			continue
		}
		offers[i], tokens[i] = r.offer, r.token
		if r.token == c.token {
			named = r.offer
			if named == passGaps {
				gap = err
			}
		}
	}
	maps.DeleteFunc(tokens, func(i int, _ string) bool { return offers[i] != named || named == passGaps })
	c.allowed = tokens
	return gap
}
