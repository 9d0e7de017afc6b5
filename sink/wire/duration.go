package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a duration as Go writes it, such as 90s or 1h30m, or a whole
// number of days, such as 7d. It may be 0, but not negative.
func ParseDuration(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 64); err == nil && n <= uint64(math.MaxInt64/day) {
			return time.Duration(n) * day, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a valid duration: use one such as 90s, 12h or 7d", abbreviate(s))
	}
	return d, nil
}
