package ndjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// Unit is what a number counts that is an instant, since 1970.
type Unit string

// The units. Without one, a number is seconds or milliseconds if as such it is in the years 2001 to 2286, and it is
// refused otherwise.
const (
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
)

var (
	decimal = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,20})?$`)
	zone    = regexp.MustCompile(`([+-][0-9]{2})([0-9]{2})$`)
)

// latest is the last instant that RFC 3339 can write.
const latest = 253402300799999

// instant reads an instant, of a member of a line. A fraction of a millisecond is rounded up.
func instant(raw []byte, unit Unit) (wire.Time, error) {
	text := string(raw)
	switch raw[0] {
	case '{':
		return instantOfMongo(raw, unit)
	case '"':
		_ = json.Unmarshal(raw, &text) // it is valid
		if decimal.MatchString(text) {
			break
		}
		at, err := wire.ParseInstant(zone.ReplaceAllString(text, "$1:$2"))
		if err != nil {
			return 0, errors.New("use an instant as in RFC 3339, such as 2030-01-31T18:00:00Z, or a number of seconds or milliseconds since 1970")
		}
		return at, nil
	}
	if !decimal.MatchString(text) {
		return 0, errors.New("use an instant as in RFC 3339 in quotes, or a number of seconds or milliseconds since 1970")
	}
	n, _ := new(big.Rat).SetString(text)
	if unit == "" {
		switch whole, _, _ := strings.Cut(text, "."); len(strings.TrimLeft(whole, "0")) {
		case 10:
			unit = Seconds
		case 13:
			unit = Milliseconds
		default:
			return 0, fmt.Errorf("that may be seconds or milliseconds since 1970: say which with --time-unit %s or %s", Seconds, Milliseconds)
		}
	}
	if unit == Seconds {
		n.Mul(n, big.NewRat(1000, 1))
	}
	ms, rest := new(big.Int).QuoRem(n.Num(), n.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		ms.Add(ms, big.NewInt(1))
	}
	if !ms.IsInt64() || ms.Int64() > latest {
		return 0, fmt.Errorf("as %s since 1970 that is after the year 9999: use another --time-unit", map[Unit]string{Seconds: "seconds", Milliseconds: "milliseconds"}[unit])
	}
	return wire.Time(ms.Int64()), nil
}

// instantOfMongo reads an instant in the Extended JSON of MongoDB.
func instantOfMongo(raw []byte, unit Unit) (wire.Time, error) {
	var value map[string]json.RawMessage
	_ = json.Unmarshal(raw, &value) // it is valid
	if date, ok := value["$date"]; ok && len(value) == 1 {
		return instant(date, Milliseconds)
	}
	for _, name := range []string{"$numberLong", "$numberInt", "$numberDouble"} {
		if n, ok := value[name]; ok && len(value) == 1 && n[0] == '"' {
			return instant(n, unit)
		}
	}
	return 0, errors.New(`use an instant as in RFC 3339, a number of seconds or milliseconds since 1970, or {"$date":…} of MongoDB`)
}
