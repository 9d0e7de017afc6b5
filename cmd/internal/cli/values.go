package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/ttlrules"
)

// period is a duration that may also be written in days, as in 7d.
type period time.Duration

func (p *period) UnmarshalText(text []byte) error {
	d, err := parsePeriod(string(text))
	*p = period(d)
	return err
}

func parsePeriod(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 64); err == nil && n <= uint64(math.MaxInt64/day) {
			return time.Duration(n) * day, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q: allowed is a duration such as 90s, 12h or 7d", s)
	}
	return d, nil
}

// size is a number of bytes that may also be written with a unit, as in 10GiB.
type size int64

func (n *size) UnmarshalText(text []byte) error {
	s, factor := string(text), int64(1)
	for unit, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			s, factor = number, bytes
		}
	}
	number, err := strconv.ParseInt(s, 10, 64)
	if err != nil || number < 1 || number > math.MaxInt64/factor {
		return fmt.Errorf("%q: allowed is a number of bytes over 0, such as 1073741824, 512MiB or 10GiB", text)
	}
	*n = size(number * factor)
	return nil
}

// syncInterval is a duration, or 0 for "always".
type syncInterval time.Duration

func (i *syncInterval) UnmarshalText(text []byte) error {
	if string(text) == "always" {
		*i = 0
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("%q: allowed is a duration over 0 such as 1s, or always", text)
	}
	*i = syncInterval(d)
	return nil
}

// instant is a point in time, or one so long ago.
type instant struct{ time.Time }

func (i *instant) UnmarshalText(text []byte) error {
	if at, err := time.Parse(time.RFC3339Nano, string(text)); err == nil {
		i.Time = at
		return nil
	}
	ago, err := parsePeriod(string(text))
	if err != nil {
		return fmt.Errorf("%q: allowed is an instant such as 2026-01-31T12:00:00Z, or how long ago, such as 90s, 12h or 7d", text)
	}
	i.Time = time.Now().Add(-ago)
	return nil
}

// ttl is an item's TTL in seconds; unset if 0.
type ttl int32

// Decode implements kong.MapperValue: by default kong takes -1 for a flag.
func (t *ttl) Decode(ctx *kong.DecodeContext) error {
	text, err := popNumber(ctx)
	if err != nil {
		return err
	}
	n, err := ttlrules.ParseTTL([]byte(text))
	if err != nil || n == ttlrules.Inherit {
		return fmt.Errorf("%q: allowed are -1 and a whole number of seconds from 1 to %d", text, ttlrules.MaxSeconds)
	}
	*t = ttl(n)
	return nil
}

// defaultTTL is a collection's default TTL. The pointer is nil if it is not given.
type defaultTTL ttlrules.Default

// Decode implements kong.MapperValue.
func (d *defaultTTL) Decode(ctx *kong.DecodeContext) error {
	text, err := popNumber(ctx)
	if err != nil {
		return err
	}
	n, err := ttlrules.ParseDefault([]byte(text))
	if text == "off" {
		n, err = ttlrules.Off, nil
	} else if n == ttlrules.Off {
		err = errors.Join(err, ttlrules.ErrInvalidTTL) // null, or nothing at all
	}
	if err != nil {
		return fmt.Errorf("%q: allowed are off, -1, and a whole number of seconds from 1 to %d", text, ttlrules.MaxSeconds)
	}
	*d = defaultTTL(n)
	return nil
}

// popNumber takes a flag's value, which may begin with a minus.
func popNumber(ctx *kong.DecodeContext) (string, error) {
	token := ctx.Scan.Pop()
	if token.IsEOL() || token.InferredType() == kong.FlagToken {
		return "", errors.New("a value is missing")
	}
	return token.String(), nil
}
