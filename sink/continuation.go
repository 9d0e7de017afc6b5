package sink

import (
	"encoding/base64"
	"encoding/json"
)

// encodeContinuation writes the position at which a page ends as a text for the client.
func encodeContinuation(position any) string {
	b, _ := json.Marshal(position) // text and numbers: cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeContinuation reads what Encode wrote.
func decodeContinuation(s string, position any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, position)
	}
	return err
}
