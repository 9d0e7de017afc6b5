package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Slide is the property slideOnRead: the part of the TTL that has to be over before a read renews the clock. It is over
// 0 and under 1; 0 if reads renew nothing. As JSON it is a number, true for [SlideTenth] and false for 0.
type Slide float64

// SlideTenth is what true stands for.
const SlideTenth Slide = 0.1

// ParseSlide reads a Slide as JSON has it.
func ParseSlide(value []byte) (Slide, error) {
	switch string(value) {
	case "true":
		return SlideTenth, nil
	case "false":
		return 0, nil
	}
	var part float64
	if err := json.Unmarshal(value, &part); err != nil || bytes.Equal(value, []byte("null")) || part <= 0 || part >= 1 {
		return 0, fmt.Errorf("slideOnRead %s is not valid: use true, false, or the part of the TTL that has to be over "+
			"before a read renews the clock, a number over 0 and under 1 such as 0.01", Quote(string(value)))
	}
	return Slide(part), nil
}

// String writes the part as JSON has it.
func (s Slide) String() string {
	switch s {
	case 0:
		return "false"
	case SlideTenth:
		return "true"
	}
	return strconv.FormatFloat(float64(s), 'g', -1, 64)
}

// MarshalJSON implements [json.Marshaler].
func (s Slide) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Slide) UnmarshalJSON(b []byte) (err error) {
	*s, err = ParseSlide(b)
	return err
}
