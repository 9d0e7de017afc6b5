package streams

import (
	"errors"
	"fmt"
	"regexp"
	"testing"
)

var tokenIn = regexp.MustCompile(`run lapse begin-anew ([0-9a-f]{8}) `)

// TestG12_ADecisionIsOfOneKind: a token covers the refusals of its kind, whichever of them it names, and that
// one last. A decision about events does not cover documents.
func TestG12_ADecisionIsOfOneKind(t *testing.T) {
	why := errors.New("something is missing")
	refusals := []error{nil, NewLoss(why, 1), fmt.Errorf("take over: %w", NewImpasse(why, "", 2)), NewLoss(why, 3), NewImpasse(why, "", 4), why}
	token := func(i int) string { return tokenIn.FindStringSubmatch(refusals[i].Error())[1] }
	for _, c := range []struct {
		token   string
		offer   Offer
		covered []int
	}{
		{token(1), GiveUpEvents, []int{3, 1}}, {token(2), GiveUpState, []int{4, 2}}, {token(3), GiveUpEvents, []int{1, 3}},
		{token(4), GiveUpState, []int{2, 4}}, {"00000000", "", nil}, {"", "", nil},
	} {
		if offer, covered := Covered(c.token, refusals); offer != c.offer || fmt.Sprint(covered) != fmt.Sprint(c.covered) {
			t.Errorf("the token %q covers %v (%s), want %v", c.token, covered, offer, c.covered)
		}
	}
	if got := Decision(NewImpasse(why, "begun", 2)); got != "begun" {
		t.Errorf("a decision that was begun has the token %s", got)
	}
}
