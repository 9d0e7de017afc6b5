package ttlrules_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// FuzzParseTTL holds the parsers against a slow one that leaves JSON to
// encoding/json and numbers to math/big.
func FuzzParseTTL(f *testing.F) {
	for _, value := range []string{``, `null`, `-1`, `0`, `1`, `2147483647`, `2147483648`, `1.0`, `1e2`, `"1"`, `[1]`,
		`true`, ` 60 `} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		want, ok := slowParse(value)
		item, itemErr := ttlrules.ParseTTL(value)
		def, defErr := ttlrules.ParseDefault(value)
		if !ok {
			checkError(t, itemErr, "ttl", string(value))
			checkError(t, defErr, "defaultTtl", string(value))
			return
		}
		if itemErr != nil || int64(item) != want {
			t.Errorf("ParseTTL(%q) = %d, %v; want %d", value, item, itemErr, want)
		}
		if defErr != nil || int64(def) != want {
			t.Errorf("ParseDefault(%q) = %d, %v; want %d", value, def, defErr, want)
		}
	})
}

func slowParse(value []byte) (seconds int64, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var v any
	switch err := decoder.Decode(&v); {
	case err == io.EOF:
		return 0, true // nothing there but white space
	case err != nil:
		return 0, false
	}
	if _, err := decoder.Token(); err != io.EOF {
		return 0, false // something comes after the value
	}
	if v == nil {
		return 0, true
	}
	number, isNumber := v.(json.Number)
	if !isNumber || strings.ContainsAny(number.String(), ".eE") {
		return 0, false
	}
	n, isInt := new(big.Int).SetString(number.String(), 10)
	if !isInt || n.Sign() == 0 || n.Cmp(big.NewInt(-1)) < 0 || n.Cmp(big.NewInt(ttlrules.MaxSeconds)) > 0 {
		return 0, false
	}
	return n.Int64(), true
}
