package credentials

import (
	"errors"
	"regexp"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Denied is what a NATS server does not permit a user.
type Denied struct {
	Subscribe bool // otherwise publish
	Subject   string
}

func (d *Denied) Error() string {
	verb := "publish"
	if d.Subscribe {
		verb = "subscribe"
	}
	return "the NATS server does not permit this user to " + verb + " to " + d.Subject
}

// The server tells only by this text, which is part of its protocol.
var violation = regexp.MustCompile(`Permissions Violation for (Publish|Subscription) to ("(?:[^"\\]|\\.)*")`)

// AsDenied reads an error that nats.go hands to the error handler of a connection. It
// returns nil if the error is about something else.
func AsDenied(err error) *Denied {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	match := violation.FindStringSubmatch(err.Error())
	if match == nil {
		return nil
	}
	subject, unquoteErr := strconv.Unquote(match[2])
	if unquoteErr != nil {
		return nil
	}
	return &Denied{Subscribe: match[1] == "Subscription", Subject: subject}
}
