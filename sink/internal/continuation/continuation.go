// Package continuation writes the position at which a page ends as a text, and reads it again.
package continuation

import (
	"encoding/base64"
	"encoding/json"
)

// Encode writes the position at which a page ends as a text for the client.
func Encode(position any) string {
	b, _ := json.Marshal(position) // text and numbers: cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// Decode reads what Encode wrote.
func Decode(s string, position any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, position)
	}
	return err
}
