package layout

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Reply is a list that a script returned. Its methods never panic: a value that is missing
// or of another kind reads as the zero value.
type Reply []any

func (r Reply) at(i int) any {
	if i < len(r) {
		return r[i]
	}
	return nil
}

// Int is the number at i. Redis sends it as an integer or as text.
func (r Reply) Int(i int) int64 {
	switch v := r.at(i).(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// Str is the text at i.
func (r Reply) Str(i int) string { s, _ := r.at(i).(string); return s }

// Has reports whether there is a text at i. A script returns false for a missing value.
func (r Reply) Has(i int) bool { _, ok := r.at(i).(string); return ok }

// List is the list at i.
func (r Reply) List(i int) Reply { l, _ := r.at(i).([]any); return l }

// Score is the score of a sorted set at i, which Redis writes as a float.
func (r Reply) Score(i int) (score int64, ok bool) {
	s, ok := r.at(i).(string)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return int64(f), err == nil
}

// Fields reads a flat list of field and value, as HGETALL returns it.
func (r Reply) Fields() map[string]string {
	m := make(map[string]string, len(r)/2)
	for i := 0; i+1 < len(r); i += 2 {
		m[r.Str(i)] = r.Str(i + 1)
	}
	return m
}

// ErrForeign reports that a key of lapse holds something that this lapse did not store: the
// key is another program's, another version's, or another log's.
var ErrForeign = errors.New("not stored by this lapse")

// ErrUnavailable reports that a shard cannot be read now.
var ErrUnavailable = errors.New("not available")

// Foreign wraps Redis's answer that a key has another type in an [ErrForeign]. Redis begins
// that answer with the code WRONGTYPE; miniredis has the code in the middle. It explains the
// answer of a master that moves the slot of the keys to another one.
func Foreign(err error) error {
	answer := redis.Error(nil)
	switch {
	case !errors.As(err, &answer):
	case strings.Contains(answer.Error(), "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case strings.Contains(answer.Error(), "non local key"), redis.HasErrorPrefix(err, "TRYAGAIN"):
		return fmt.Errorf("the slot of its keys is being moved to another master of the cluster: %w", err)
	}
	return err
}
