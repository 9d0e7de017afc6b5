package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// MaxCollection is the longest name of a collection, in bytes.
	MaxCollection = 128
	// MaxID is the longest id, in bytes, before it is escaped.
	MaxID = 255
	// MaxTarget is the longest target, in bytes, and MaxTargetTokens how many tokens it may have.
	MaxTarget       = 128
	MaxTargetTokens = 8
)

// ErrInvalidName is wrapped by every error about the name of a collection or an id.
var ErrInvalidName = errors.New("invalid name")

// invalidName is an ErrInvalidName whose text is a sentence for the client.
type invalidName string

func (e invalidName) Error() string { return string(e) }
func (invalidName) Unwrap() error   { return ErrInvalidName }

func invalid(format string, args ...any) error { return invalidName(fmt.Sprintf(format, args...)) }

// isWord reports whether the name of a collection may contain c.
func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// isPlain reports whether the token of an id contains c without an escape.
func isPlain(c byte) bool {
	return isWord(c) || strings.IndexByte("~:@+=,", c) >= 0
}

// CheckCollection returns an ErrInvalidName unless the name of a collection is valid.
func CheckCollection(name string) error {
	const use = "use 1 to 128 of A-Z a-z 0-9 _ -."
	switch {
	case name == "":
		return invalid("the name of the collection is empty: %s", use)
	case len(name) > MaxCollection:
		return invalid("collection %s is %d bytes long: %s", Quote(name), len(name), use)
	}
	for i := range len(name) {
		if !isWord(name[i]) {
			_, size := utf8.DecodeRuneInString(name[i:])
			return invalid("collection %s contains %q: %s", Quote(name), name[i:i+size], use)
		}
	}
	return nil
}

// CheckTarget returns an ErrInvalidName unless a target is valid: see [HeaderTarget].
func CheckTarget(target string) error {
	const use = "use 1 to 8 tokens of A-Z a-z 0-9 _ -, joined by dots, and at most 128 bytes in all."
	if len(target) > MaxTarget {
		return invalid("target %s is %d bytes long: %s", Quote(target), len(target), use)
	}
	tokens := strings.Split(target, ".")
	if len(tokens) > MaxTargetTokens {
		return invalid("target %s has %d tokens: %s", Quote(target), len(tokens), use)
	}
	for _, token := range tokens {
		if token == "" {
			return invalid("target %s has an empty token: %s", Quote(target), use)
		}
		for i := range len(token) {
			if !isWord(token[i]) {
				_, size := utf8.DecodeRuneInString(token[i:])
				return invalid("target %s contains %q: %s", Quote(target), token[i:i+size], use)
			}
		}
	}
	return nil
}

// CheckID returns an ErrInvalidName unless an id is valid.
func CheckID(id string) error {
	const use = "use 1 to 255 bytes of UTF-8 text."
	switch {
	case id == "":
		return invalid("the id is empty: %s", use)
	case len(id) > MaxID:
		return invalid("id %s is %d bytes long: %s", Quote(id), len(id), use)
	case !utf8.ValidString(id):
		return invalid("id %s is not UTF-8: %s", Quote(id), use)
	}
	return nil
}

const escaping = "write every byte but A-Z a-z 0-9 _ - ~ : @ + = , as %XX, in upper case."

const upperHex = "0123456789ABCDEF"

// EscapeID writes an id as one token of a subject: every byte outside
// A-Z a-z 0-9 _ - ~ : @ + = , becomes %XX.
func EscapeID(id string) string { return escapeWith('%', id, isPlain) }

// EscapeToken turns any text into tokens of a subject. Dots separate the tokens, as in the
// text. It does not change the output of [EscapeID]. Every other byte becomes !XX, and an empty
// token, which no subject may have, becomes !. So two different texts never become the same
// subject.
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

// UnescapeID reads the token of an id. It returns an error unless the token is as [EscapeID]
// writes it and the id is valid. So all messages of an id have one subject, and one
// shard.
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
				return "", invalid("id %s in the subject has a %% without two digits of 0-9 A-F behind it: %s", Quote(token),
					escaping)
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
		return "", invalid("id %s in the subject is not escaped as it has to be: write it as %s. %s", Quote(token),
			Quote(EscapeID(id)), "W"+escaping[1:])
	}
	return id, nil
}

// Quote prepares a text from a client for an error message: in quotes, with escapes for
// invisible characters, and only the beginning of a long text.
func Quote(s string) string { return strconv.Quote(abbreviate(s)) }

// abbreviate shortens a text, so that a hostile name cannot fill an error message.
func abbreviate(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	end := longest
	for end > longest-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
