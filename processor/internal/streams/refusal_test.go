package streams

import (
	"errors"
	"fmt"
	"regexp"
	"testing"
)

var tokenIn = regexp.MustCompile(`--begin-anew ([0-9a-f]{8}) `)

// TestG12_ConsentIsOfOneKind: a token covers the refusals of its kind, whichever of them it names.
// Whoever gives up events has not given up documents.
func TestG12_ConsentIsOfOneKind(t *testing.T) {
	why := errors.New("something is missing")
	refusals := []error{nil, NewLoss(why, 1), fmt.Errorf("take over: %w", NewImpasse(why, 2)), NewLoss(why, 3), NewImpasse(why, 4), why}
	token := func(i int) string { return tokenIn.FindStringSubmatch(refusals[i].Error())[1] }
	for _, c := range []struct {
		token   string
		allowed []int
	}{{token(1), []int{1, 3}}, {token(2), []int{2, 4}}, {token(3), []int{1, 3}}, {token(4), []int{2, 4}}, {"00000000", nil}} {
		consent := NewConsent(c.token)
		consent.Cover(refusals)
		var allowed []int
		for i, err := range refusals {
			if consent.Allows(i, err) {
				allowed = append(allowed, i)
			}
		}
		if fmt.Sprint(allowed) != fmt.Sprint(c.allowed) {
			t.Errorf("the token %s allows %v, want %v", c.token, allowed, c.allowed)
		}
		if consent.Allows(1, NewLoss(why, 9)) {
			t.Errorf("the token %s allows a refusal that came later", c.token)
		}
	}
	if NewConsent("").Allows(1, refusals[1]) {
		t.Error("no token allows something")
	}
}
