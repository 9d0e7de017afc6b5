package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxCollection is the longest name of a collection, in bytes.
	MaxCollection = 128
	// MaxID is the longest id, in bytes, before it is escaped.
	MaxID = 255
)

// ErrInvalidName is wrapped by every error about the name of a collection or an id.
var ErrInvalidName = errors.New("invalid name")

// isWord says whether c may stand in the name of a collection.
func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// isPlain says whether c stands for itself in the token of an id.
func isPlain(c byte) bool {
	return isWord(c) || strings.IndexByte("~:@+=,", c) >= 0
}

// CheckCollection says what is wrong with the name of a collection, if anything.
func CheckCollection(name string) error {
	if name == "" || len(name) > MaxCollection {
		return fmt.Errorf("%w: collection %q has %d bytes: allowed are 1 to %d of A-Z a-z 0-9 _ -", ErrInvalidName, abbreviate(name), len(name), MaxCollection)
	}
	for i := range len(name) {
		if !isWord(name[i]) {
			return fmt.Errorf("%w: collection %q has a %q: allowed are 1 to %d of A-Z a-z 0-9 _ -", ErrInvalidName, abbreviate(name), name[i:i+1], MaxCollection)
		}
	}
	return nil
}

// CheckID says what is wrong with an id, if anything.
func CheckID(id string) error {
	if id == "" || len(id) > MaxID {
		return fmt.Errorf("%w: the id has %d bytes: allowed are 1 to %d", ErrInvalidName, len(id), MaxID)
	}
	if !utf8.ValidString(id) {
		return fmt.Errorf("%w: the id %q is not UTF-8", ErrInvalidName, abbreviate(id))
	}
	return nil
}

const upperHex = "0123456789ABCDEF"

// EscapeID writes an id as one token of a subject: every byte outside
// A-Z a-z 0-9 _ - ~ : @ + = , becomes %XX.
func EscapeID(id string) string { return escapeWith('%', id, isPlain) }

// EscapeToken makes any text fit to stand in a subject, as one token or, since it
// leaves dots as they are, as many. It leaves what [EscapeID] made as it is; every
// other byte becomes !XX, and an empty token, which no subject may have, !. So no
// two texts become the same subject.
func EscapeToken(s string) string {
	s = escapeWith('!', s, func(c byte) bool { return isPlain(c) || c == '%' || c == '.' })
	tokens := strings.Split(s, ".")
	for i, token := range tokens {
		if token == "" {
			tokens[i] = "!"
		}
	}
	return strings.Join(tokens, ".")
}

func escapeWith(mark byte, s string, plain func(byte) bool) string {
	special := 0
	for i := range len(s) {
		if !plain(s[i]) {
			special++
		}
	}
	if special == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*special)
	for i := range len(s) {
		c := s[i]
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte(mark)
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}

// UnescapeID reads the token of an id. There is one way only to write an id, so
// that its messages all have one subject and one partition: what [EscapeID] would
// have written otherwise is an error, as is what is not an id.
func UnescapeID(token string) (string, error) {
	id := token
	if strings.IndexByte(token, '%') >= 0 {
		b := make([]byte, 0, len(token))
		for i := 0; i < len(token); i++ {
			c := token[i]
			if c != '%' {
				b = append(b, c)
				continue
			}
			hi, lo := -1, -1
			if i+2 < len(token) {
				hi, lo = strings.IndexByte(upperHex, token[i+1]), strings.IndexByte(upperHex, token[i+2])
			}
			if hi < 0 || lo < 0 {
				return "", fmt.Errorf("%w: the id token %q has a %% that is not followed by two digits of 0-9 A-F", ErrInvalidName, abbreviate(token))
			}
			b = append(b, byte(hi<<4|lo))
			i += 2
		}
		id = string(b)
	}
	if err := CheckID(id); err != nil {
		return "", err
	}
	if EscapeID(id) != token {
		return "", fmt.Errorf("%w: the id token %q is to be written %q: bytes of A-Z a-z 0-9 _ - ~ : @ + = , stand for themselves, every other byte is %%XX in upper case", ErrInvalidName, abbreviate(token), EscapeID(id))
	}
	return id, nil
}

// abbreviate keeps a hostile name from filling an error message.
func abbreviate(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return s[:longest] + "..."
}
