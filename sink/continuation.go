package sink

import (
	"encoding/base64"
	"encoding/json"
)

// errContinuation refuses a continuation that no page has.
var errContinuation = invalid("the continuation is not valid: use the one of the page before, as it is, or none to begin")

// encodeContinuation writes the position at which a page ends as a text for the client.
func encodeContinuation(position any) string {
	b, _ := json.Marshal(position) // text and numbers: cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeContinuation reads what encodeContinuation wrote.
func decodeContinuation(s string, position any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, position)
	}
	return err
}
