package backup

import (
	"fmt"
	"slices"
	"strings"
)

// pause notes that all collections are to be paused. It returns an error if some log would get a configuration of a
// collection after that, which ends the pause.
func (c *Contents) pause() error {
	if len(c.unclear) > 0 {
		slices.Sort(c.unclear)
		return fmt.Errorf("the configuration of %s had come to some logs only when the backup was taken, so it cannot be restored paused: use --until an earlier instant. Nothing is changed",
			strings.Join(c.unclear, ", "))
	}
	c.paused = true
	return nil
}

// pausable reports whether a stream is a log with something to pause.
func (s *streamContents) pausable(c *Contents) bool { return c.isLog(s.Name) && s.state.LastSeq > 0 }

// pauseMessage is the message that pauses all collections, behind the end of a log. It has the stamp of that, so what
// has expired after it waits.
func (c *Contents) pauseMessage(s *streamContents) *message {
	shard := slices.Index(c.names.logs(), s.Name)
	return &message{Seq: s.end + 1, Stamp: max(s.logTime, 1), Subject: c.Prefix.Log(shard, c.Shards).Pause()}
}
