package health

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// NoShard stands for the whole process where the number of a shard is expected.
const NoShard = -1

// Lines joins the problems of shards: those that read alike are one line, which names the shards.
// Its zero value is empty.
type Lines struct{ lines []line }

type line struct {
	key    string
	shards []int
	reason error
}

// localPort is the port of one connection of this process, in a reason such as
// "read tcp 10.0.0.1:51234->10.0.0.2:6379: i/o timeout". Each shard may have met another one.
var localPort = regexp.MustCompile(`:\d+->`)

// Add adds the problem of a shard, or of [NoShard]. A reason of nil is none.
func (l *Lines) Add(shard int, reason error) {
	if reason == nil {
		return
	}
	key := localPort.ReplaceAllString(reason.Error(), "->")
	for i, have := range l.lines {
		if have.key == key && shard != NoShard && have.shards != nil {
			l.lines[i].shards = append(have.shards, shard)
			return
		}
	}
	added := line{key: key, reason: reason}
	if shard != NoShard {
		added.shards = []int{shard}
	}
	l.lines = append(l.lines, added)
}

// Err returns the lines, in the order in which they were begun; nil if there is none.
func (l *Lines) Err() error {
	var all []error
	for _, one := range l.lines {
		err := one.reason
		if one.shards != nil {
			err = fmt.Errorf("%s: %w", Shards(one.shards), err)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// Shards names shards, whose numbers ascend: "shard 3", "shards 0, 2", "shards 0 to 5, 7".
func Shards(numbers []int) string {
	if len(numbers) == 1 {
		return "shard " + strconv.Itoa(numbers[0])
	}
	var parts []string
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		if end-i > 2 {
			parts = append(parts, fmt.Sprintf("%d to %d", numbers[i], numbers[end-1]))
		} else {
			end = i + 1
			parts = append(parts, strconv.Itoa(numbers[i]))
		}
		i = end
	}
	return "shards " + strings.Join(parts, ", ")
}
