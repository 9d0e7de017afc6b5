package layout

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

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
