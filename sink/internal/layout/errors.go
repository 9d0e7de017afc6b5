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

// Foreign wraps Redis's answer that a key has another type in an [ErrForeign]. Redis begins
// that answer with the code WRONGTYPE; miniredis has the code in the middle.
func Foreign(err error) error {
	if answer := redis.Error(nil); errors.As(err, &answer) && strings.Contains(answer.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}
