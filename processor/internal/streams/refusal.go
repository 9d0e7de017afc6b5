package streams

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
)

// ErrRefused: the partition is damaged, and the log does not reach back to rebuild it.
var ErrRefused = errors.New("the partition is refused")

// Offer is what a refusal offers a person to give up, as its message says it.
type Offer string

const (
	GiveUpState    Offer = "give up what is missing and begin anew from the log as it is: stop lapse and run lapse begin-anew %s (it uses no snapshot; what Redis holds now is kept until that has succeeded)"
	GiveUpMessages Offer = "go on without them: stop lapse and run lapse begin-anew %s (nothing else is given up, and lapse does not ask about them again)"
	GiveUpEvents   Offer = "give up these events for good and go on without them: stop lapse and run lapse begin-anew %s (the documents stay as they are, and nothing else is given up)"
)

// impasse is why a partition cannot go on from what is stored, until a person decides:
// restore what is missing, or give it up.
type impasse struct {
	why   error
	offer Offer
	token string // names this impasse, so that a decision is about no other
}

func (r *impasse) Unwrap() error { return r.why }

func (r *impasse) Error() string {
	return fmt.Sprintf("%v; or "+string(r.offer), r.why, r.token)
}

// Decision is the token of a refusal; empty if it has none.
func Decision(err error) string {
	var r *impasse
	if !errors.As(err, &r) {
		return ""
	}
	return r.token
}

// NewImpasse makes the error of a partition that cannot go on. begun is the token of a decision that
// somebody has begun to carry out; empty if there is none. facts name the log and what is stored: they do
// not change while the impasse lasts, so the token stays the same.
func NewImpasse(why error, begun string, facts ...any) error {
	r := newImpasse(why, GiveUpState, facts)
	r.token = cmp.Or(begun, r.token)
	return r
}

// NewLoss is NewImpasse where nothing is missing but events.
func NewLoss(why error, facts ...any) error {
	return newImpasse(why, GiveUpEvents, append([]any{"events"}, facts...))
}

func newImpasse(why error, offer Offer, facts []any) *impasse {
	h := fnv.New32a()
	_, _ = fmt.Fprintln(h, facts...)
	return &impasse{why: why, offer: offer, token: fmt.Sprintf("%08x", h.Sum32())}
}

// Covered are the refusals that a decision is about: all of the kind of the refusal that the token names,
// because a person may see the refusal of one partition before another partition is refused too. A decision
// about events does not cover documents. The refusal that the token names comes last, so that a person can
// run an interrupted command again with the same token.
func Covered(token string, errs []error) (offer Offer, covered []int) {
	named := slices.IndexFunc(errs, func(err error) bool { return token != "" && Decision(err) == token })
	if named < 0 {
		return "", nil
	}
	offer = offerOf(errs[named])
	for i, err := range errs {
		if i != named && offerOf(err) == offer {
			covered = append(covered, i)
		}
	}
	return offer, append(covered, named)
}

func offerOf(err error) Offer {
	var r *impasse
	if !errors.As(err, &r) {
		return ""
	}
	return r.offer
}
